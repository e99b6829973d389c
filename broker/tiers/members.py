"""Compress the lines of a segment as gzip members, of which each can be inflated alone.

The whole is one gzip file that every reader of gzip accepts. Each member except the last holds `MEMBER_BYTES` bytes of
lines, so the member of a byte follows from its position. A line may span several members.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from isal import igzip_lib, isal_zlib

from broker.tiers.errors import ObjectDamaged

__all__ = ["MEMBER_BYTES", "Packed", "inflate_member", "inflate_members", "pack_members"]

MEMBER_BYTES: Final = 256 << 10
_LEVEL: Final = 1
_GZIP: Final = 31
"""The parameter of zlib that stands for gzip's header and its largest window."""


class Packed(NamedTuple):
    """Compressed lines, and the byte of `data` at which each member ends."""

    data: bytes
    ends: list[int]


def pack_members(pieces: Iterable[bytes]) -> Packed:
    """Compress each piece as one member. All pieces except the last must have `MEMBER_BYTES` bytes."""
    data = bytearray()
    ends: list[int] = []
    for piece in pieces:
        data += isal_zlib.compress(piece, _LEVEL, _GZIP)
        ends.append(len(data))
    return Packed(bytes(data), ends)


def inflate_member(member: bytes) -> bytes:
    """Return the lines of one member. Raises ObjectDamaged.

    At most `MEMBER_BYTES` are inflated, so that a damaged member cannot fill the memory.
    """
    piece, rest = _inflate(member)
    if rest:
        raise ObjectDamaged("a member of a segment is too long")
    return piece


def inflate_members(data: bytes) -> Iterator[bytes]:
    """Yield the lines of each member without the table of the members, which is slower. Raises ObjectDamaged."""
    while data:
        piece, data = _inflate(data)
        yield piece


def _inflate(data: bytes) -> tuple[bytes, bytes]:
    """Return the lines of the first member, and the bytes after it."""
    inflating = isal_zlib.decompressobj(_GZIP)
    try:
        piece: bytes = inflating.decompress(data, MEMBER_BYTES + 1)
    except igzip_lib.IsalError as error:  # type: ignore[misc] # declared as an instance
        raise ObjectDamaged(f"a member of a segment cannot be inflated: {error}") from error
    if not inflating.eof or len(piece) > MEMBER_BYTES:
        raise ObjectDamaged("a member of a segment is incomplete or too long")
    return piece, inflating.unused_data
