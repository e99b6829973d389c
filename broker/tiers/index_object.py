"""The object of a segment's index: the index as it is on the disk, then the table of the members of its lines.

::

    index          24 bytes for each event, and 4 bytes of seal, see `broker.log.index`
    table          8 bytes for each member: the byte of the compressed lines at which the member ends
    end            magic (8 bytes), members (u32), bytes of a member (u32), bytes of the index (u64)
    crc32c         of all before it (u32)
"""

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.tiers.errors import ObjectDamaged
from broker.tiers.members import MEMBER_BYTES

__all__ = ["IndexObject", "decode_index_object", "encode_index_object"]

_MAGIC: Final = b"TWINDEX1"
_END: Final = struct.Struct("<8sIIQ")
_CRC: Final = struct.Struct("<I")


class IndexObject(NamedTuple):
    """The `entries` of a segment's index with their seal, and the byte of the compressed lines at which each member ends."""

    entries: bytes
    ends: list[int]


def encode_index_object(index: bytes, ends: list[int]) -> bytes:
    """Return the bytes of the object."""
    body = index + struct.pack(f"<{len(ends)}Q", *ends) + _END.pack(_MAGIC, len(ends), MEMBER_BYTES, len(index))
    return body + _CRC.pack(crc32c(body))


def decode_index_object(data: bytes) -> IndexObject:
    """Return the parts of the object. Raises ObjectDamaged."""
    body, crc = data[: -_CRC.size], data[-_CRC.size :]
    if len(body) < _END.size or crc != _CRC.pack(crc32c(body)):
        raise ObjectDamaged("the object of an index is damaged")
    magic, members, member_bytes, length = _END.unpack(body[-_END.size :])
    if magic != _MAGIC or member_bytes != MEMBER_BYTES:
        raise ObjectDamaged("the object of an index was written by a release that this one cannot read")
    if length + 8 * members + _END.size != len(body):
        raise ObjectDamaged("the object of an index is damaged")
    return IndexObject(body[:length], list(struct.unpack_from(f"<{members}Q", body, length)))
