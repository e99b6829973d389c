"""Turn records into messages of Kafka, and messages into entries. No I/O.

An attribute of a record is a header of the message, with the names of the Kafka binding of CloudEvents 1.0.2: ``ce_id``,
``ce_source``, and ``content-type`` for the type of the payload. The key of the event is the key of the message. A message
without a value is a tombstone.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from bridge.central import Arrival, Record
from bridge.envelope import SOURCE, VIA

__all__ = ["Header", "HeaderWriter", "arrival_of", "place_of", "split_place"]

Header = tuple[str, bytes | str | None]

_CONTENT_TYPE: Final = ("ce_datacontenttype", "content-type")
_CLOUD_EVENT: Final = "ce_"
_JSON: Final = "headers"
"""The attribute whose value is a JSON object of the event's headers."""
_LAYOUTS_MAX: Final = 1000

_encode = msgspec.json.Encoder().encode


class HeaderWriter:
    """Makes the headers of records. Most records of a route have the same attributes, so their names are kept."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}

    def headers(self, record: Record) -> list[tuple[str, str]]:
        """Return the headers of a record."""
        fields = record.fields
        known = tuple(fields[::2])
        names = self._names.get(known) or self._names_of(known)
        return list(zip(names, fields[1::2], strict=True))

    def _names_of(self, fields: tuple[str, ...]) -> tuple[str, ...]:
        attribute, header = _CONTENT_TYPE
        names = tuple(header if name == attribute else name for name in fields)
        if len(self._names) < _LAYOUTS_MAX:
            self._names[fields] = names
        return names


def place_of(partition: int, offset: int) -> str:
    """Return the place of a record."""
    return f"{partition}:{offset}"


def split_place(place: str) -> tuple[int, int]:
    """Return the partition and the offset of a place. Raises ValueError."""
    partition, _, offset = place.partition(":")
    return int(partition), int(offset)


def arrival_of(
    lane: str,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    *,
    headers: Iterable[Header] | None,
) -> Arrival:
    """Return the entry of a message. `lane` is its partition.

    A message of another program keeps its headers as headers of the event, except those that are attributes of a CloudEvent.
    """
    fields = {name: _text(text) for name, text in headers or ()}
    name = None if key is None else _text(key)
    source = fields.get("ce_source") or fields.get("origin") or ""
    if source.startswith(SOURCE):
        attribute, header = _CONTENT_TYPE
        if header in fields:
            fields[attribute] = fields.pop(header)
    elif fields:
        others = {one: text for one, text in fields.items() if not one.startswith(_CLOUD_EVENT) and one != VIA}
        fields = {one: text for one, text in fields.items() if one.startswith(_CLOUD_EVENT)}
        if others:
            fields[_JSON] = _encode(others).decode()
    return Arrival(f"{lane}:{offset}", timestamp, name, value, fields, lane)


def _text(raw: bytes | str | None) -> str:
    if raw is None:
        return ""
    return raw if isinstance(raw, str) else raw.decode(errors="backslashreplace")
