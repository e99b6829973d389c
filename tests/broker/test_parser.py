"""Lines → commands and refusals."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import Refusal
from broker.protocol import TOO_LONG, parse_lines
from broker.protocol.commands import Ack, Checkpoint, Hello, Last, Ping, Publish, Read, Subscribe
from broker.protocol.event_lines import line_id, place


def parse(*lines: bytes) -> list[object]:
    return list(parse_lines(list(lines), 1 << 20))


def codes(*lines: bytes) -> list[str]:
    return [item.code if isinstance(item, Refusal) else type(item).__name__ for item in parse(*lines)]


def test_publishes_behind_each_other_are_one_command_a_topic() -> None:
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
        (b'pub t {"id":"1","msg":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "bad_json"),
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
    assert parse(b"ack t @1 @22  @3") == [Ack("t", [1, 22, 3], [])] or parse(b"ack t @1 @22  @3") == [
        Ack("t", None, [1, 22, 3])
    ]
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
# What a line protocol fears most, in every field.
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
def test_no_field_makes_a_second_command_and_all_come_back_as_they_were(
    id_: str, msg: object, key: str, spaced: bool, is_ascii: bool, priority: int | None
) -> None:
    event = {"id": id_, "msg": msg, "key": key, "headers": {key: id_}} | (
        {} if priority is None else {"priority": priority}
    )
    raw = json.dumps(event, ensure_ascii=is_ascii, separators=None if spaced else (",", ":")).encode()
    assert b"\n" not in raw
    (command,) = parse(b"pub t " + raw)
    (line,), priorities = place(command.events, "t", 7, 99)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    stored = msgspec.json.decode(line)
    assert stored == {"topic": "t", "offset": 7, "timestamp": 99, "priority": 0} | event
    assert priorities == [priority or 0]
    assert line_id(line) == id_
