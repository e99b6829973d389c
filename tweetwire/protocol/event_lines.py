"""The lines of events: from the publisher's JSON to the form that disk, wire and replay share.

The form is fixed, so that a delivery copies bytes and never encodes::

    {"topic":"tweets","offset":1042,"timestamp":1650054011933,"id":"1","priority":3,"msg":"tweet 1"}

The optional members follow `msg`.
"""

import json
import re
from itertools import accumulate
from typing import Any, Final

import msgspec
from msgspec import UNSET

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.events import IncomingEvent
from tweetwire.protocol.numbers import check_numbers, may_hold_large_number
from tweetwire.protocol.timing import TimedEvent, decode_timed, normalize_times, split_options, with_options

__all__ = [
    "EVENT_EXAMPLE",
    "line_id",
    "parse_event",
    "parse_events",
    "parse_typed_event",
    "place",
    "redelivered",
    "suspected",
]

EVENT_EXAMPLE: Final = '{"id":"1","msg":"hello"}'
_EXAMPLE_CHARACTERS_MAX: Final = 60

DEPTH_MAX: Final = 255
"""The most levels of arrays and objects in `msg`.

Every reader must be able to decode a stored event. A reader's recursion limit also counts the calls that it is already
in.
"""

_decode = msgspec.json.Decoder(IncomingEvent).decode
_encode_lines = msgspec.json.Encoder().encode_lines
# The event itself is one more level.
_OPENS_MAX: Final = DEPTH_MAX + 1
_SHALLOW_BYTES: Final = 1024
"""Lines of up to this length are not examined, to keep publishing fast.

They have at most 510 levels, which are harmless.
"""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEPS: Final = [1 if character in b"[{" else -1 for character in range(256)]
_TOO_DEEP: Final = f"msg is nested deeper than {DEPTH_MAX} levels"
_ID = re.compile(rb'"id":("(?:[^"\\]|\\.)*")')


def parse_events(raws: list[bytes]) -> list[IncomingEvent]:
    """Parse events. Raises Refusal for the first fault found, without naming its line."""
    # Join with line feeds, so that a number at the end of one event does not merge with the next event.
    joined = b"\n".join(raws)
    try:
        if not joined.isascii():
            joined.decode()
        events = _decoded(raws)
    except UnicodeDecodeError:
        raise Refusal("bad_utf8", "the line is not UTF-8") from None
    except msgspec.ValidationError as error:
        raise Refusal("bad_event", str(error)) from None
    except msgspec.DecodeError as error:
        raise Refusal("bad_json", str(error)) from None
    except RecursionError:
        raise Refusal("bad_event", _TOO_DEEP) from None
    if len(max(raws, key=len)) > _SHALLOW_BYTES:
        _refuse_deep(raws)
    _refuse_unwritten(events, raws, len(joined) + 1)
    if may_hold_large_number(joined):
        for raw in filter(may_hold_large_number, raws):
            check_numbers(raw)
    if type(events[0]) is TimedEvent:
        for event in events:
            if isinstance(event, TimedEvent):
                normalize_times(event)
    return events


def _decoded(raws: list[bytes]) -> list[IncomingEvent]:
    """Decode events. If one of them has a due time or an expiry, all of them are `TimedEvent`."""
    try:
        return list(map(_decode, raws))
    except msgspec.ValidationError:
        # `IncomingEvent` does not know these members.
        return list(map(decode_timed, raws))


def _refuse_deep(raws: list[bytes]) -> None:
    """Refuse events that are nested too deeply. The lines must be JSON; only those with many brackets are examined."""
    for raw in raws:
        # `replace` finds the few brackets of a usual event in a third of the time that `count` takes.
        if len(raw) <= _SHALLOW_BYTES:
            continue
        opens = 2 * len(raw) - len(raw.replace(b"{", b"")) - len(raw.replace(b"[", b""))
        if opens > _OPENS_MAX and _depth(raw) > _OPENS_MAX:
            raise Refusal("bad_event", _TOO_DEEP)


def _depth(raw: bytes) -> int:
    brackets = _STRING.sub(b"", raw).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)))


def parse_event(raw: bytes) -> IncomingEvent:
    """Parse one event. Raises Refusal ``bad_utf8``, ``bad_json`` or ``bad_event``."""
    return parse_events([raw])[0]


def parse_typed_event(verb: str, topic: str, rest: bytes) -> IncomingEvent:
    """Parse the options and the event of a typed line, after its topic.

    Raises Refusal; for text that is not a JSON object, it shows the probable line.
    """
    words, raw = split_options(rest)
    try:
        event = parse_event(raw)
        return with_options(event, words) if words else event
    except Refusal as refusal:
        text = f"{refusal.text}; {_probable_line(verb, topic, raw)}" if _is_no_object(refusal, raw) else refusal.text
        raise Refusal(refusal.code, text, raw, topic) from None


def _is_no_object(refusal: Refusal, raw: bytes) -> bool:
    """Whether a refused event does not begin as a JSON object, such as ``hello``."""
    return refusal.code != "bad_utf8" and not raw.startswith(b"{")


def _probable_line(verb: str, topic: str, raw: bytes) -> str:
    """Return an example line: with the typed text as the event's `msg`, if the text is short enough."""
    text = raw.decode().strip()
    if len(text) > _EXAMPLE_CHARACTERS_MAX:
        return f"an event is a JSON object: {verb} {topic} {EVENT_EXAMPLE}"
    try:
        msg = msgspec.json.encode(msgspec.json.decode(text)).decode()
    except (msgspec.DecodeError, RecursionError):
        msg = msgspec.json.encode(text).decode()
    return f'an event is a JSON object: {verb} {topic} {{"id":"1","msg":{msg}}}'


def _refuse_unwritten(events: list[IncomingEvent], raws: list[bytes], size: int) -> None:
    """Refuse events that contain their own place, and events with a duplicate member, of which one would be lost.

    `size` is the length of all raws as lines.
    """
    for event in events:
        if event.topic is not UNSET or event.offset is not UNSET or event.timestamp is not UNSET:
            raise Refusal("bad_event", "the broker sets topic, offset and timestamp; leave them out")
        if event.sequence is not UNSET and event.producer is UNSET:
            raise Refusal("bad_event", "a sequence needs a producer")
    # Encoding an event never makes it longer. So if the total size is the same, no member was lost.
    if len(_encode_lines(events)) != size:
        for raw in raws:
            _check_members(raw)


def _check_members(raw: bytes) -> None:
    names = _member_names(raw)
    for name in names:
        if names.count(name) > 1:
            raise Refusal("bad_event", f"member {name!r} occurs twice")


def _member_names(raw: bytes) -> list[str]:
    """Return the names of the outermost object's members, duplicates included."""
    outermost: list[str] = []

    def keep(pairs: list[tuple[str, Any]]) -> None:
        outermost[:] = [name for name, _ in pairs]

    try:
        json.loads(raw, object_pairs_hook=keep, parse_int=str, parse_float=str)
    except RecursionError:
        raise Refusal("bad_json", "nested too deeply") from None
    return outermost


def place(events: list[IncomingEvent], topic: str, first: int, timestamp: int) -> tuple[list[bytes], list[int], int]:
    """Give events their places in a topic, from offset `first` on.

    Returns:
        The lines with their ends, the priorities, and the number of bytes of all lines.
    """
    priorities: list[int] = []
    for offset, event in enumerate(events, first):
        event.topic = topic
        event.offset = offset
        event.timestamp = timestamp
        if event.priority is UNSET:
            event.priority = 0
        priorities.append(event.priority)
    encoded = _encode_lines(events)
    return encoded.splitlines(keepends=True), priorities, len(encoded)


def redelivered(line: bytes, attempt: int) -> bytes:
    """Return a stored line with the number `attempt` of its delivery."""
    return b'{"try":%d,%b' % (attempt, line[1:])


def suspected(line: bytes) -> bytes:
    """Return a line with the mark of a suspect, which is an event whose consumer was lost."""
    return b'{"suspect":true,%b' % line[1:]


def line_id(line: bytes) -> str:
    """Return the id of the event in a stored line."""
    found = _ID.search(line)
    return "" if found is None else str(json.loads(found[1]))
