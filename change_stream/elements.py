"""Find one member of a BSON document without decoding the others, which may not be valid.

MongoDB stores text that is not UTF-8, and duplicate or deprecated members, as a client sent it. A program that decodes a whole
document to learn its `_id` fails at such a document, although its `_id` is valid.
"""

from typing import Any, Final

import bson
from bson.raw_bson import RawBSONDocument

from change_stream.extended_json import RAW_CODEC

__all__ = ["element_of", "literal_of", "member_of"]

_FIXED: Final = {
    0x01: 8,  # double
    0x06: 0,  # undefined
    0x07: 12,  # ObjectId
    0x08: 1,  # boolean
    0x09: 8,  # date
    0x0A: 0,  # null
    0x10: 4,  # int32
    0x11: 8,  # timestamp
    0x12: 8,  # int64
    0x13: 16,  # Decimal128
    0x7F: 0,  # MaxKey
    0xFF: 0,  # MinKey
}
"""The bytes of the values of each type of a fixed size."""

_COUNTED: Final = {0x02: 4, 0x03: 0, 0x04: 0, 0x05: 5, 0x0C: 16, 0x0D: 4, 0x0E: 4, 0x0F: 0}
"""The types whose values begin with a length: how many bytes a value has besides those that it counts."""

_REGEX: Final = 0x0B
_HEAD_BYTES: Final = 4


def element_of(document: RawBSONDocument, name: str) -> bytes:
    """Return a document that has only the first member `name` of `document`, as BSON.

    Raises:
        KeyError: there is no such member.
        ValueError: the BSON is damaged before that member.
    """
    raw, wanted = bytes(document.raw), name.encode()
    at = _HEAD_BYTES
    while at < len(raw) - 1:
        name_end = raw.index(b"\0", at + 1)
        end = _value_end(raw, raw[at], name_end + 1)
        if raw[at + 1 : name_end] == wanted:
            return _document(raw[at:end])
        at = end
    raise KeyError(name)


def member_of(document: RawBSONDocument, name: str) -> Any:
    """Return the value of the first member `name`. Documents in it stay BSON. Raises the errors of `element_of`."""
    return bson.decode(element_of(document, name), RAW_CODEC)[name]


def literal_of(element: bytes) -> RawBSONDocument:
    """Return ``{"$literal": value}`` for a document with one member, so that MongoDB compares the value unchanged."""
    name_end = element.index(b"\0", _HEAD_BYTES + 1)
    kind, value = element[_HEAD_BYTES : _HEAD_BYTES + 1], element[name_end + 1 : -1]
    return RawBSONDocument(_document(kind + b"$literal\0" + value))


def _document(elements: bytes) -> bytes:
    return (len(elements) + _HEAD_BYTES + 1).to_bytes(_HEAD_BYTES, "little") + elements + b"\0"


def _value_end(raw: bytes, kind: int, at: int) -> int:
    if kind in _FIXED:
        return at + _FIXED[kind]
    if kind in _COUNTED:
        return at + _COUNTED[kind] + int.from_bytes(raw[at : at + _HEAD_BYTES], "little")
    if kind == _REGEX:
        return raw.index(b"\0", raw.index(b"\0", at) + 1) + 1
    raise ValueError(f"BSON has no type {kind:#04x}")
