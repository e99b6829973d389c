"""An event between its lines: the publisher's JSON → the one form that disk, wire and replay share.

The form is fixed so that delivering is a slice and never an encode::

    {"topic":"tweets","offset":1042,"timestamp":1650054011933,"id":"1","priority":3,"msg":"tweet 1"}

with the optional members behind `msg`.
"""

import json
import re
from typing import Any

import msgspec
from msgspec import UNSET

from broker.errors import Refusal
from broker.events import IncomingEvent

__all__ = ["line_id", "parse_event", "parse_events", "place", "redelivered"]

_decode = msgspec.json.Decoder(IncomingEvent).decode
_encode_lines = msgspec.json.Encoder().encode_lines
_ID = re.compile(rb'"id":("(?:[^"\\]|\\.)*")')


def parse_events(raws: list[bytes]) -> list[IncomingEvent]:
    """Return the events that `raws` are. Raises Refusal for the first thing found wrong, without saying where."""
    try:
        if not all(map(bytes.isascii, raws)):
            b"".join(raws).decode()
        events = list(map(_decode, raws))
    except UnicodeDecodeError:
        raise Refusal("bad_utf8", "the line is not UTF-8") from None
    except msgspec.ValidationError as error:
        raise Refusal("bad_event", str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refusal("bad_json", str(error)) from None
    _refuse_unwritten(events, raws)
    return events


def parse_event(raw: bytes) -> IncomingEvent:
    """Return the event that `raw` is. Raises Refusal ``bad_utf8``, ``bad_json`` or ``bad_event``."""
    return parse_events([raw])[0]


def _refuse_unwritten(events: list[IncomingEvent], raws: list[bytes]) -> None:
    """Refuse a place of the event's own, and members that would be lost when it is written: what stands twice."""
    for event in events:
        if event.topic is not UNSET or event.offset is not UNSET or event.timestamp is not UNSET:
            raise Refusal("bad_event", "topic, offset and timestamp are the broker's to give")
        if event.sequence is not UNSET and event.producer is UNSET:
            raise Refusal("bad_event", "a sequence needs a producer")
    # What is written is never longer than what was read, so where the sum is the same nothing can have been lost.
    if len(_encode_lines(events)) - len(events) != sum(map(len, raws)):
        for raw in raws:
            _check_members(raw)


def _check_members(raw: bytes) -> None:
    names = _member_names(raw)
    for name in names:
        if names.count(name) > 1:
            raise Refusal("bad_event", f"member {name!r} stands twice")


def _member_names(raw: bytes) -> list[str]:
    """Return the names of the outermost object's members as they stand."""
    outermost: list[str] = []

    def keep(pairs: list[tuple[str, Any]]) -> None:
        outermost[:] = [name for name, _ in pairs]

    try:
        json.loads(raw, object_pairs_hook=keep, parse_int=str, parse_float=str)
    except RecursionError:
        raise Refusal("bad_json", "nested too deeply") from None
    return outermost


def place(events: list[IncomingEvent], topic: str, first: int, timestamp: int) -> tuple[list[bytes], list[int]]:
    """Give events their places in a topic from offset `first` on; returns their lines, with ends, and priorities."""
    priorities: list[int] = []
    for offset, event in enumerate(events, first):
        event.topic = topic
        event.offset = offset
        event.timestamp = timestamp
        if event.priority is UNSET:
            event.priority = 0
        priorities.append(event.priority)
    return _encode_lines(events).splitlines(keepends=True), priorities


def redelivered(line: bytes, attempt: int) -> bytes:
    """Mark a stored line as its `attempt`-th delivery."""
    return b'{"try":%d,%b' % (attempt, line[1:])


def line_id(line: bytes) -> str:
    """Return the event's id from a stored line."""
    found = _ID.search(line)
    return "" if found is None else str(json.loads(found[1]))
