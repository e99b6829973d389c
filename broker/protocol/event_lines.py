"""An event between its lines: the publisher's JSON → the one form that disk, wire and replay share.

The form is fixed so that delivering is a slice and never an encode::

    {"topic":"tweets","offset":1042,"timestamp":1650054011933,"id":"1","priority":3,"msg":"tweet 1"}

with the optional members behind `msg`. `parse_event` gives the part from ``"id"`` on (with an opening brace), `stored_line`
puts the place in front of it.
"""

import json
import re
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from broker.errors import Refusal
from broker.events import RawEvent

__all__ = ["line_id", "parse_event", "redelivered", "stored_line"]

_Name = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_\-][A-Za-z0-9_.\-]{0,127}\Z")]


class _CheckedEvent(RawEvent, forbid_unknown_fields=True, kw_only=True, gc=False):
    id: Annotated[str, Meta(min_length=1, max_length=256)]
    priority: Annotated[int, Meta(ge=0, le=255)] = 0
    msg: Raw
    producer: _Name | UnsetType = UNSET
    sequence: Annotated[int, Meta(ge=0, le=2**63 - 1)] | UnsetType = UNSET


_decode = msgspec.json.Decoder(_CheckedEvent).decode
_encode = msgspec.json.Encoder().encode
_DEFAULT_PRIORITY = len(b'"priority":0,')
_ID = re.compile(rb'"id":("(?:[^"\\]|\\.)*")')


def parse_event(raw: bytes) -> tuple[RawEvent, bytes]:
    """Return the event and its one form without a place. Raises Refusal ``bad_utf8``, ``bad_json`` or ``bad_event``."""
    try:
        if not raw.isascii():
            raw.decode()
        event = _decode(raw)
        body = _encode(event)
    except UnicodeDecodeError:
        raise Refusal("bad_utf8", "the line is not UTF-8") from None
    except msgspec.ValidationError as error:
        raise Refusal("bad_event", str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refusal("bad_json", str(error)) from None
    # What msgspec writes is never longer than what it read, save a default priority; so equal lengths leave no room
    # for a member that stood twice.
    if len(body) != len(raw):
        _refuse_duplicates(raw, body)
    if event.producer is UNSET and event.sequence is not UNSET:
        raise Refusal("bad_event", "a sequence needs a producer")
    return event, body


def _refuse_duplicates(raw: bytes, body: bytes) -> None:
    if len(body) - len(raw) == _DEFAULT_PRIORITY and b'"priority"' not in raw:
        return
    names = _member_names(raw)
    for name in set(names):
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


def stored_line(topic: str, offset: int, timestamp: int, body: bytes) -> bytes:
    """Put an event's place in front of it; the result ends with the line end."""
    return b'{"topic":"%b","offset":%d,"timestamp":%d,%b\n' % (topic.encode(), offset, timestamp, body[1:])


def redelivered(line: bytes, attempt: int) -> bytes:
    """Mark a stored line as its `attempt`-th delivery."""
    return b'{"try":%d,%b' % (attempt, line[1:])


def line_id(line: bytes) -> str:
    """Return the event's id from a stored line."""
    found = _ID.search(line)
    return "" if found is None else str(json.loads(found[1]))
