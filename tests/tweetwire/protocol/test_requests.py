"""Requests for any arguments: a call makes one line that is parsed to one command, or raises ValueError."""

import json
import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tweetwire import Event
from tweetwire.protocol import LineSplitter, parse_lines, requests
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.events import StoredEvent, encode_event, encode_events
from tweetwire.protocol.reasons import REASON_BYTES_MAX, reason_json
from tweetwire.protocol.verbs.exactly_once import Pubrec, Pubrel
from tweetwire.protocol.verbs.publishing import Checkpoint, Last, Publish
from tweetwire.protocol.verbs.reading import Read
from tweetwire.protocol.verbs.session import Hello, Quit
from tweetwire.protocol.verbs.settling import Ack, Extend, Nack
from tweetwire.protocol.verbs.subscribing import Subscribe, Unsubscribe

LIMIT = 1 << 20

# Characters that split or end lines and words in some parser, and characters that are not allowed in option names.
NASTY = st.text(st.sampled_from('ab@=."{}\\ \t\n\r\v\f\0\x1c\x1e\x85\xa0\u2028\u3000\ud800é'), max_size=8)
TEXTS = (
    NASTY
    | st.text(max_size=12)
    | st.sampled_from(["t", "p\nunsub t as=keep", "a\nping", "t as=x", "latest create", "2026-11-27 20:00"])
)
NUMBERS: st.SearchStrategy[Any] = st.integers() | TEXTS | st.floats()


def parsed(line: bytes) -> list[Any]:
    """Read bytes as the broker does."""
    return list(parse_lines(LineSplitter(LIMIT).feed(line), LIMIT))


def is_one(line: bytes, kind: type[Any]) -> bool:
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    (command,) = parsed(line)
    return isinstance(command, kind | Refusal)


def tried(make: Callable[[], bytes]) -> bytes | None:
    try:
        return make()
    except ValueError:
        return None


@given(TEXTS, TEXTS, TEXTS, NUMBERS, NUMBERS)
def test_one_call_is_one_line_of_its_own_kind_whatever_the_arguments(
    topic: str, name: str, text: str, number: Any, other: Any
) -> None:
    made: list[tuple[Callable[[], bytes], type[Any]]] = [
        (lambda: requests.hello_line(name, None), Hello),
        (lambda: requests.hello_line(name, text), Hello),
        (lambda: requests.read_line(topic, number, other, 5), Read),
        (lambda: requests.read_line(topic, text, 5, number), Read),
        (lambda: requests.last_line(topic, name), Last),
        (lambda: requests.checkpoint_line(topic, name, text), Checkpoint),
        (lambda: requests.extend_line(topic, [3, 4]), Extend),
        (lambda: requests.ack_lines(topic, [3])[0], Ack),
        (lambda: requests.nack_line(topic, number, text, name, text), Nack),
        (lambda: requests.pubrel_line(topic, text), Pubrel),
        (lambda: requests.step_line("pubrec", topic, number), Pubrec),
        (lambda: requests.publish_prefix(topic) + b'{"id":"1","msg":1}\n', Publish),
    ]
    for make, kind in made:
        line = tried(make)
        assert line is None or is_one(line, kind)


@given(TEXTS, st.none() | TEXTS, TEXTS | st.integers(), NUMBERS, NUMBERS, st.none() | st.lists(TEXTS, max_size=2))
def test_a_subscription_is_one_sub_line_with_the_given_arguments(
    topic: str, name: str | None, start: Any, number: Any, seconds: Any, strikes: Any
) -> None:
    def make() -> bytes:
        request = requests.subscribe_request(
            topic,
            as_=name,
            prefetch=number,
            create=False,
            timeout_s=seconds,
            tries=number,
            strikes=strikes,
            backoff_s=seconds,
            max_wait_s=None,
            qos=1,
        )
        assert is_one(request.leave_line(), Unsubscribe)
        return request.line(start)

    line = tried(make)
    if line is not None:
        assert is_one(line, Subscribe)
        (command,) = parsed(line)
        if isinstance(command, Subscribe):
            assert (command.topic, command.name, command.may_create) == (topic, name, False)


@given(TEXTS | st.builds("{}{}{}".format, NASTY, st.sampled_from(["read", "hello", "quit", "sub"]), NASTY))
def test_a_typed_command_is_never_one_with_more_than_one_reply(text: str) -> None:
    line = tried(lambda: requests.command_line(text))
    if line is not None:
        (command,) = parsed(line)
        assert not isinstance(command, Read | Hello | Quit | Subscribe)


@pytest.mark.parametrize("text", ["", " ", "\v", "\tread t 0", "\rread t 0", "quit\t", "ping\nquit", "\x1cread t 0"])
def test_a_command_without_exactly_one_reply_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a command with one reply"):
        requests.command_line(text)


@given(
    TEXTS,
    st.recursive(TEXTS | st.integers() | st.floats() | st.none(), lambda x: st.lists(x) | st.dictionaries(TEXTS, x)),
)
def test_an_event_is_one_line_and_its_message_is_decoded_unchanged(id_: str, msg: Any) -> None:
    try:
        body = encode_event(Event(id=id_, msg=msg))
    except ValueError:
        return
    assert b"\n" not in body
    assert json.loads(body)["msg"] == msg


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("wrap", "place"),
    [
        (lambda value: value, "msg"),
        (lambda value: {"a": {"b": [None, 1.5, value]}}, r"msg\.a\.b\[2\]"),
        (lambda value: [2**70, value], r"msg\[1\]"),
        (lambda value: [Raw(b"1"), (value,)], r"msg\[1\]\[0\]"),
        (
            lambda value: StoredEvent(topic="t", offset=value, timestamp=1, id="1", priority=1, msg=Raw(b"1")),
            r"msg\.offset",
        ),
    ],
)
def test_a_number_that_json_cannot_express_is_refused_with_its_place(
    wrap: Callable[[float], Any], place: str, value: float
) -> None:
    with pytest.raises(ValueError, match=f"^{place} is {value}, which JSON cannot express"):
        encode_events([Event(id="0", msg=1), Event(id="1", msg=wrap(value))])


@pytest.mark.parametrize("text", ["NaN", "[-Infinity]", '{"a":NaN}', '{"a":\n', "\n", '1}\npub t {"id":"2","msg":1'])
def test_a_raw_message_with_such_a_number_or_with_lines_that_are_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="msg is Raw, but not JSON"):
        encode_event(Event(id="1", msg=Raw(text.encode())))


@pytest.mark.parametrize(
    "msg",
    [None, "NaN", {"NaN": None}, 1.7e308, -0.0, 2**70, [Raw(b"null"), 1.5], b"\xcb\x7f\xf8\0\0\0\0\0\0", "˿\x7fð"],
)
def test_a_text_that_looks_like_such_a_number_is_published(msg: Any) -> None:
    assert msgspec.json.decode(encode_event(Event(id="1", msg=msg)))["msg"] == msgspec.json.decode(
        msgspec.json.encode(msg)
    )


@given(
    st.lists(
        st.sampled_from([1, "I N null\n", None, {"a": None}, Raw(b'{"a":\n1}'), Raw(b'"I"'), [Raw(b"[\n1]"), 1.5], {}])
    )
)
def test_events_have_the_same_lines_whether_encoded_together_or_singly(msgs: list[Any]) -> None:
    events = [Event(id=str(number), msg=msg) for number, msg in enumerate(msgs)]
    assert encode_events(events) == [encode_event(event) for event in events]


@given(st.text(), st.none() | st.text() | st.integers(-(2**63), 2**63), st.none() | st.text(), st.integers(1, 40_000))
def test_a_reason_fits_the_limit_whatever_its_text_and_is_whole_where_it_can_be(
    message: str, code: str | int | None, trace: str | None, times: int
) -> None:
    assert len(reason_json(message * times, code, trace and trace * times)) <= REASON_BYTES_MAX
    words = {"message": message, "code": code, "trace": trace}
    if len(msgspec.json.encode(words)) < 1000:
        assert msgspec.json.decode(reason_json(message, code, trace)) == {
            name: word for name, word in words.items() if word is not None
        }


@pytest.mark.parametrize("character", ["x", "é", "猫", "🐈", '"', "\0", "\udcff"])
def test_a_long_reason_is_cut_to_the_limit_and_not_much_below(character: str) -> None:
    reason = reason_json(character * 20_000, None, None)
    assert REASON_BYTES_MAX * 9 // 10 < len(reason) <= REASON_BYTES_MAX
    (nack,) = parsed(
        b"nack t @1 " + reason_json("m" * 20_000, "c" * 5000, "begin" + character * 20_000 + "end") + b"\n"
    )
    assert (nack.message[:1], nack.code[:1], nack.trace[-3:]) == ("m", "c", "end")
