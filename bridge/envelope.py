"""Turn events into records of an engine, and entries of an engine into events.

With the envelope `cloudevents`, a record has the attributes of a CloudEvent in binary mode (CloudEvents 1.0.2). The payload is
the value, and each attribute is a field with the prefix ``ce_``. An event that goes out and comes in elsewhere keeps its id,
key, priority, parent, headers and msg.

The field `via` is the path of an event: the identities of the brokers and streams that it has passed, separated by commas. A
bridge never sends an event to a stream on its path, and never takes in an event whose path has its broker.
"""

import base64
import time
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from bridge.central import Arrival, Record
from bridge.gaps import Gap
from tweetwire import Event, StoredEvent

__all__ = [
    "SOURCE",
    "VIA",
    "EnvelopeKind",
    "IncomingEnvelope",
    "Origination",
    "OutgoingEnvelope",
    "ValueKind",
    "origination_of",
]

EnvelopeKind: TypeAlias = Literal["cloudevents", "plain"]
ValueKind: TypeAlias = Literal["msg", "event"]

VIA: Final = "via"
ENCODING: Final = "data-encoding"
"""The header of an event whose `msg` is the base64 of a payload that is not JSON."""
_EVENT_TYPE: Final = "tweetwire.event"
_GAP_TYPE: Final = "tweetwire.gap"
SOURCE: Final = "tweetwire://"
"""The beginning of the source of every event that a bridge sends."""
_ID_CHARACTERS_MAX: Final = 256
_PRIORITY_MAX: Final = 255
_DIGITS_MAX: Final = 19
_NULL: Final = b"null"

_encode = msgspec.json.Encoder().encode
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode
_see_json = msgspec.json.Decoder(Raw).decode


class _EventValue(Struct, kw_only=True):
    """The members of an event that is the value of an entry; others are left out."""

    id: str
    msg: Raw
    priority: int = 0
    key: str | None = None
    parent: str | None = None
    headers: dict[str, str] | None = None


_decode_value = msgspec.json.Decoder(_EventValue).decode


class Origination(Struct, frozen=True):
    """Where an entry began: the identity of the broker, the topic, and the offset. A gap has the first and the last offset."""

    broker: str
    topic: str
    offset: int
    gap_first: int | None = None


class OutgoingEnvelope:
    """Makes records of the events of one topic.

    Args:
        topic: The topic.
        identity: The identity under which the broker is known in the engine.
        centre: The identity of the central stream.
        kind: Whether records have the attributes of CloudEvents, or no more than the bridges need.
        value: Whether the value is the event's `msg` or the whole event.
        tombstones: Whether an event with the `msg` null is a record without a value.
    """

    def __init__(
        self,
        topic: str,
        identity: str,
        centre: str,
        *,
        kind: EnvelopeKind = "cloudevents",
        value: ValueKind = "msg",
        tombstones: bool = False,
    ) -> None:
        self._topic = topic
        self._identity = identity
        self._centre = centre
        self._is_plain = kind == "plain"
        self._is_whole = value == "event"
        self._tombstones = tombstones
        self._source = f"{SOURCE}{identity}/{topic}"
        self._second = (-1, "")

    def records(self, events: Iterable[StoredEvent]) -> list[Record]:
        """Return the records of events, without those of events whose path has the stream or the broker."""
        return [record for event in events if (record := self.record(event)) is not None]

    def record(self, event: StoredEvent) -> Record | None:
        """Return the record of an event, or None if the stream or the broker is on the event's path."""
        headers, path = event.headers, self._identity
        if headers is not UNSET and VIA in headers:
            passed = headers[VIA].split(",")
            if self._centre in passed or self._identity in passed:
                return None
            path = f"{headers[VIA]},{self._identity}"
            headers = {name: text for name, text in headers.items() if name != VIA}
        value: bytes | None = _encode(event) if self._is_whole else bytes(event.msg)
        if self._tombstones and bytes(event.msg) == _NULL:
            value = None
        key = None if event.key is UNSET else event.key
        fields = self._fields(event.id, _EVENT_TYPE, event.timestamp, event.offset, path)
        if not self._is_plain:
            if key is not None:
                fields += ("ce_partitionkey", key)
            if event.priority:
                fields += ("ce_priority", str(event.priority))
            if event.parent is not UNSET:
                fields += ("ce_parent", event.parent)
            if headers is not UNSET and headers:
                fields += ("headers", _encode(headers).decode())
        return Record(event.offset, event.timestamp, key, value, fields)

    def gap(self, gap: Gap, timestamp: int) -> Record:
        """Return the record that says which events are missing, and why."""
        first, last = gap.first, gap.last
        place = {"topic": self._topic, "broker": self._identity, "first": first, "last": last}
        value = _encode({"gap": {**place, "reason": gap.reason}})
        fields = self._fields(f"gap-{first}-{last}", _GAP_TYPE, timestamp, last, self._identity)
        fields += ("gap_first", str(first))
        return Record(last, timestamp, None, value, fields)

    def _fields(self, id_: str, kind: str, timestamp: int, offset: int, path: str) -> list[str]:
        if self._is_plain:
            return ["origin", self._source, "offset", str(offset), VIA, path]
        return [
            *("ce_specversion", "1.0", "ce_id", id_, "ce_source", self._source, "ce_type", kind),
            *("ce_time", self._time(timestamp), "ce_datacontenttype", "application/json"),
            *("ce_offset", str(offset), VIA, path),
        ]

    def _time(self, timestamp: int) -> str:
        """Return a date as RFC 3339. Events of the same second share most of the text."""
        second, milliseconds = divmod(timestamp, 1000)
        if self._second[0] != second:
            self._second = (second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)))
        return f"{self._second[1]}.{milliseconds:03}Z"


def origination_of(arrival: Arrival) -> Origination | None:
    """Return where an entry began, None if no bridge of ours wrote it."""
    fields = arrival.fields
    source = fields.get("ce_source") or fields.get("origin") or ""
    offset = fields.get("ce_offset") or fields.get("offset") or ""
    broker, slash, topic = source.removeprefix(SOURCE).partition("/")
    place = _number(offset)
    if not source.startswith(SOURCE) or not slash or place is None:
        return None
    return Origination(broker, topic, place, _number(fields.get("gap_first", "")))


class IncomingEnvelope:
    """Makes events of the entries of one stream.

    Args:
        identity: The identity of the broker that takes the events in.
        centre: The identity of the central stream.
        name: The name of the stream, for the ids of entries that have no id.
        value: Whether the value is the event's `msg` or a whole event.
    """

    def __init__(self, identity: str, centre: str, name: str, *, value: ValueKind = "msg") -> None:
        self._identity = identity
        self._centre = centre
        self._name = name
        self._is_whole = value == "event"

    def event(self, arrival: Arrival) -> Event | None:
        """Return the event of an entry, or None if this broker is on its path."""
        fields = arrival.fields
        path = fields.get(VIA, "")
        if path and self._identity in path.split(","):
            return None
        event = Event(id=self._id(arrival), msg=None)
        if arrival.key is not None:
            event.key = arrival.key
        if "ce_partitionkey" in fields:
            event.key = fields["ce_partitionkey"]
        if "ce_parent" in fields:
            event.parent = fields["ce_parent"]
        event.priority = _priority(fields.get("ce_priority", ""))
        headers = _headers(fields.get("headers", ""))
        if not self._takes_whole(event, headers, arrival.value):
            _set_msg(event, headers, arrival.value)
        headers[VIA] = f"{path},{self._centre}" if path else self._centre
        event.headers = headers
        return event

    def _id(self, arrival: Arrival) -> str:
        id_ = arrival.fields.get("ce_id", "")
        if 1 <= len(id_) <= _ID_CHARACTERS_MAX:
            return id_
        return f"{self._name}/{arrival.place}"[-_ID_CHARACTERS_MAX:]

    def _takes_whole(self, event: Event, headers: dict[str, str], value: bytes | None) -> bool:
        """Fill an event from a value that is a whole event. Returns False for any other value."""
        if not self._is_whole or value is None:
            return False
        try:
            whole = _decode_value(value)
        except msgspec.MsgspecError:
            return False
        event.id, event.msg = whole.id, whole.msg
        event.priority = min(max(whole.priority, 0), _PRIORITY_MAX)
        if whole.key is not None:
            event.key = whole.key
        if whole.parent is not None:
            event.parent = whole.parent
        headers.update(whole.headers or {})
        return True


def _set_msg(event: Event, headers: dict[str, str], value: bytes | None) -> None:
    if value is None:
        return
    try:
        value.decode()
        event.msg = _see_json(value)
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
        event.msg = base64.b64encode(value).decode()
        headers[ENCODING] = "base64"


def _priority(text: str) -> int:
    return min(_number(text) or 0, _PRIORITY_MAX)


def _number(text: str) -> int | None:
    """Return a number of up to 19 digits, None if the text is not one: any program can write fields."""
    return int(text) if len(text) <= _DIGITS_MAX and text.isascii() and text.isdecimal() else None


def _headers(text: str) -> dict[str, str]:
    try:
        return _decode_headers(text) if text else {}
    except (msgspec.MsgspecError, RecursionError):
        return {}
