"""Lines are parsed to commands and refusals."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweetwire.protocol import TOO_LONG, parse_lines
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.event_lines import line_id, place
from tweetwire.protocol.verbs.publishing import Checkpoint, Last, Publish
from tweetwire.protocol.verbs.reading import Read
from tweetwire.protocol.verbs.session import Hello, Ping
from tweetwire.protocol.verbs.settling import Ack
from tweetwire.protocol.verbs.subscribing import Subscribe


def parse(*lines: bytes) -> list[Any]:
    return list(parse_lines(list(lines), 1 << 20))


def codes(*lines: bytes) -> list[str]:
    return [item.code if isinstance(item, Refusal) else type(item).__name__ for item in parse(*lines)]


def test_consecutive_publishes_are_one_command_a_topic() -> None:
    found = parse(b'pub a {"id":"1","msg":1}', b'pub a {"id":"2","msg":2}', b'pub b {"id":"3","msg":3}', b"ping")
    assert [type(item) for item in found] == [Publish, Publish, Ping]
    assert [event.id for event in found[0].events] == ["1", "2"]


def test_a_refused_line_between_good_ones_is_refused_at_its_place() -> None:
    good, bad = b'pub a {"id":"1","msg":1}', b'pub a {"id":1,"msg":1}'
    assert codes(good, good, bad, good, bad, bad, good) == [
        "Publish",
        "bad_event",
        "Publish",
        "bad_event",
        "bad_event",
        "Publish",
    ]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"nonsense", "unknown_command"),
        (b"pub", "bad_arguments"),
        (b"pub tweets", "bad_arguments"),
        (b'pub .hidden {"id":"1","msg":1}', "bad_name"),
        (b'pub a/b {"id":"1","msg":1}', "bad_name"),
        (b'pub \xc3\xa4 {"id":"1","msg":1}', "bad_name"),
        (b"pub " + b"a" * 129 + b' {"id":"1","msg":1}', "bad_name"),
        (b"pub t {", "bad_json"),
        (b'pub t {"id":"1","msg":nul}', "bad_json"),
        (b'pub t {"id":"1","msg":"a\tb"}', "bad_json"),
        (b'pub t {"id":"1","msg":1} x', "bad_json"),
        (b'pub t {"id":"1","msg":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "bad_event"),
        (b'pub t {"id":"\\ud800","msg":1}', "bad_json"),
        (b'pub t {"id":"1"}', "bad_event"),
        (b'pub t {"id":"","msg":1}', "bad_event"),
        (b'pub t {"id":"' + b"x" * 257 + b'","msg":1}', "bad_event"),
        (b'pub t {"id":"1","mgs":1}', "bad_event"),
        (b'pub t {"id":"1","msg":1,"priority":256}', "bad_event"),
        (b'pub t {"id":"1","msg":1,"priority":-1}', "bad_event"),
        (b'pub t {"id":"1","msg":1,"priority":1.5}', "bad_event"),
        (b'pub t {"id":"1","msg":1,"priority":1e999}', "bad_event"),
        (b'pub t {"id":"1","msg":1,"headers":{"a":1}}', "bad_event"),
        (b'pub t {"id":"1","msg":1,"sequence":1}', "bad_event"),
        (b'pub t {"id":"1","msg":1,"producer":"a b","sequence":1}', "bad_event"),
        (b'pub t {"id":"1","msg":1,"producer":"p","sequence":-1}', "bad_event"),
        (b'pub t {"id":"1","id":"2","msg":1}', "bad_event"),
        (b'pub t {"id":"1","msg":1, "msg" : 2}', "bad_event"),
        (b'pub t {"id":"1","msg":1,"offset":7}', "bad_event"),
        (b'pub t {"topic":"u","id":"1","msg":1}', "bad_event"),
        (b'pub t {"id":"1","msg":"\xff"}', "bad_utf8"),
        (b'pub t {"id":"1","msg":"\xed\xa0\x80"}', "bad_utf8"),
        (b"ack t", "bad_arguments"),
        (b"sub", "bad_arguments"),
        (b"sub t prefetch=0", "bad_arguments"),
        (b"sub t prefetch=100001", "bad_arguments"),
        (b"sub t prefetch=x", "bad_arguments"),
        (b"sub t as=", "bad_arguments"),
        (b"sub t as=a as=b", "bad_arguments"),
        (b"sub t frm=earliest", "bad_arguments"),
        (b"sub t from=never", "bad_arguments"),
        (b"sub t as=a/b", "bad_name"),
        (b"read t", "bad_arguments"),
        (b"read t -1", "bad_arguments"),
        (b"read t 0 limit=0", "bad_arguments"),
        (b"last t", "bad_arguments"),
        (b"checkpoint t p", "bad_arguments"),
        (b"ping now", "bad_arguments"),
        (b"hello \xff", "bad_utf8"),
        (TOO_LONG, "too_long"),
    ],
)
def test_a_wrong_line_is_one_refusal_and_the_next_command_works(line: bytes, code: str) -> None:
    assert codes(line, b"ping") == [code, "Ping"]


def test_verbs_have_two_names_in_any_case_and_empty_lines_ask_for_nothing() -> None:
    lines = [
        b'PUBLISH t {"id":"1","msg":1}',
        b"Subscribe t",
        b"acknowledge t x",
        b"UNSUBSCRIBE t ",
        b"",
        b"  ",
        b" ping ",
    ]
    assert codes(*lines) == ["Publish", "Subscribe", "Ack", "Unsubscribe", "Ping"]


def test_arguments_are_read_as_written() -> None:
    assert parse(b"sub t as=me prefetch=7 from=12 create") == [Subscribe("t", "me", 7, 12, {}, may_create=True)]
    assert parse(b"ack t @1 @22  @3") == [Ack("t", [1, 22, 3], [])]
    assert parse(b"ack t @1 x @y") == [Ack("t", None, [1, "x", "@y"])]
    assert parse(b"read t earliest limit=5 bytes=10") == [Read("t", "earliest", 5, 10)]
    assert parse(b"checkpoint t p a  b") == [Checkpoint("t", "p", "a  b")]
    assert parse(b"last t p") == [Last("t", "p")]
    assert parse(b"hello me quiet") == [Hello("me", is_quiet=True)]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
# Texts that could break a line protocol if they were not escaped: separators, quotes and line ends.
nasty = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('\r\n\0\x85\u2028\u2029\x0b\x1c"\\ {}'),
    min_size=1,
    max_size=20,
)


@given(
    id_=nasty,
    msg=json_values | nasty,
    key=nasty,
    spaced=st.booleans(),
    is_ascii=st.booleans(),
    priority=st.none() | st.integers(0, 255),
)
def test_no_field_makes_a_second_command_and_all_are_parsed_unchanged(
    id_: str, msg: object, key: str, spaced: bool, is_ascii: bool, priority: int | None
) -> None:
    event = {"id": id_, "msg": msg, "key": key, "headers": {key: id_}} | (
        {} if priority is None else {"priority": priority}
    )
    raw = json.dumps(event, ensure_ascii=is_ascii, separators=None if spaced else (",", ":")).encode()
    assert b"\n" not in raw
    (command,) = parse(b"pub t " + raw)
    (line,), priorities, _ = place(command.events, "t", 7, 99)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    stored = msgspec.json.decode(line)
    assert stored == {"topic": "t", "offset": 7, "timestamp": 99, "priority": 0} | event
    assert priorities == [priority or 0]
    assert line_id(line) == id_


MANY_DIGITS = b"9" * 400
TOO_LARGE = str(1 << 63).encode()


@pytest.mark.parametrize("number", [TOO_LARGE, b"12345678901234567890123", MANY_DIGITS, b"9" * 5000])
@pytest.mark.parametrize(
    "line",
    [
        *(b"ack t @%b", b"ack t @1 @%b", b"nack t @%b", b"extend t @1 @%b", b"explain t @%b as=s", b"chain t @%b"),
        *(b"pubrec t @%b", b"pubcomp t @%b", b"redrive t as=s @%b", b"redrive t as=s all rate=%b/s"),
        *(b"sub t from=%b", b"sub t prefetch=%b", b"sub t tries=%b", b"sub t timeout=%bs", b"sub t backoff=%bs"),
        *(b"sub t max_wait=%bms", b"read t %b", b"read t 0 limit=%b", b"read t 0 bytes=%b", b"dead limit=%b"),
        *(b"chain t a limit=%b", b"clients limit=%b", b"unsettled t as=s from=%b", b"unsettled t as=s limit=%b"),
        *(b"retain t age=%bs", b"retain t bytes=%b", b"retain t at_most=%bKiB"),
    ],
)
def test_a_number_that_is_too_large_is_refused_and_never_cut(line: bytes, number: bytes) -> None:
    assert codes(line % number, b"ping") == ["bad_arguments", "Ping"]


@pytest.mark.parametrize("member", [b'"sequence":%b', b'"priority":%b'])
def test_a_number_of_an_event_that_is_too_large_is_refused(member: bytes) -> None:
    event = b'pub t {"id":"1","msg":1,"producer":"p",' + member + b"}"
    assert codes(event % TOO_LARGE, event % MANY_DIGITS) == ["bad_event", "bad_event"]


def test_leading_zeros_change_no_number() -> None:
    zeros = b"0" * 30
    assert parse(b"ack t @%b15 @7" % zeros) == [Ack("t", [15, 7], [])]
    assert parse(b"read t %b15 limit=%b3" % (zeros, zeros)) == [Read("t", 15, 3, 1 << 20)]
    assert parse(b"redrive t as=s all rate=%b15/s" % zeros)[0].rate == 15


@pytest.mark.parametrize("ref", ["@1,2", "@-5", "@1.0", "@1e2", "@1@2", "@"])
def test_a_ref_that_is_not_an_offset_in_digits_is_an_id(ref: str) -> None:
    assert parse(f"ack t {ref}".encode()) == [Ack("t", None, [ref])]


def test_a_size_keeps_all_its_digits() -> None:
    assert parse(b"retain t bytes=9007199254740993")[0].change == {"bytes": 9007199254740993}


@pytest.mark.parametrize("space", ["  ", "\t", " \t ", "\t\t"])
@pytest.mark.parametrize(
    "line",
    [
        *('pub t {"id":"1","msg":"a  b"}', 'pub2 t {"id":"1","msg":1}', "ack t @1 @2", 'nack t @1 "no stock"'),
        *("sub t as=s prefetch=7 create", "checkpoint t p a", "describe t text", "last t p", "read t 0 limit=1"),
        *("comment t text", 'schema t {"type":"string"}', "retain t age=1d", "redrive t as=s all", "pubrel t 1"),
    ],
)
def test_several_spaces_and_tabs_between_words_count_as_one(line: str, space: str) -> None:
    words = line.replace('{"id":"1","msg":"a  b"}', "EVENT").replace('"no stock"', "WHY").split(" ")
    typed = space.join(words).replace("EVENT", '{"id":"1","msg":"a  b"}').replace("WHY", '"no stock"')
    for one in (typed, f"{space}{typed}{space}"):
        (found,), (wanted,) = parse(one.encode()), parse(line.encode())
        assert msgspec.json.encode(found) == msgspec.json.encode(wanted)


@pytest.mark.parametrize(
    ("typed", "example"),
    [
        ("pub t hello", 'pub t {"id":"1","msg":"hello"}'),
        ("pub t hello world ", 'pub t {"id":"1","msg":"hello world"}'),
        ('pub t say "hi"', 'pub t {"id":"1","msg":"say \\"hi\\""}'),
        ("pub t 12.5", 'pub t {"id":"1","msg":12.5}'),
        ("publish t [1, 2]", 'pub t {"id":"1","msg":[1,2]}'),
        ("pub2 t hello", 'pub2 t {"id":"1","msg":"hello"}'),
        ("pub t " + "x" * 200, 'pub t {"id":"1","msg":"hello"}'),
    ],
)
def test_a_message_that_is_not_a_json_object_is_refused_with_an_example_that_works(typed: str, example: str) -> None:
    (refusal,) = parse(typed.encode())
    assert isinstance(refusal, Refusal)
    assert refusal.code in {"bad_json", "bad_event"}
    assert refusal.text.endswith(f"; an event is a JSON object: {example}")
    assert codes(example.encode()) in (["Publish"], ["Pub2"])


@given(st.text())
def test_any_text_typed_as_an_event_is_refused_in_one_way_or_published(text: str) -> None:
    (found,) = parse(b"pub t x" + text.encode())
    assert isinstance(found, Refusal)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"b":1},', "]")])
@pytest.mark.parametrize(
    ("levels", "is_taken"), [(255, True), (256, False), (600, False), (974, False), (100_000, False)]
)
def test_a_message_has_at_most_255_levels(opening: str, closing: str, levels: int, *, is_taken: bool) -> None:
    message = f"{opening * (levels - 1)}[]{closing * (levels - 1)}"
    (found,) = parse(f'pub t {{"id":"1","key":"{"k" * 1000}","msg":{message}}}'.encode())
    if is_taken:
        assert isinstance(found, Publish)
    else:
        assert isinstance(found, Refusal)
        assert (found.code, found.text) == ("bad_event", "msg is nested deeper than 255 levels")


def test_brackets_in_a_text_or_beside_each_other_are_not_levels() -> None:
    lines = [f'pub t {{"id":"1","msg":"{"[{" * 500}"}}', f'pub t {{"id":"2","msg":[{"[],{}," * 500}"\\"["]}}']
    (run,) = parse(*(line.encode() for line in lines))
    assert isinstance(run, Publish)
    assert len(run.events) == 2
