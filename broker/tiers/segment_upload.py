"""Upload one sealed segment: its index, then its lines, both verified. Call this in a thread.

A segment that was uploaded has the same names and bytes the next time, so a repetition changes nothing.
"""

import os
from collections.abc import Iterator
from enum import Enum
from errno import EIO
from mmap import mmap
from pathlib import Path
from typing import Final

from crc32c import crc32c

from broker.log.index import ENTRY_BYTES, SEAL_BYTES, seal_of, unseal
from broker.log.reading import mapped, read_index
from broker.log.scan import Scan
from broker.log.segment import Segment
from broker.tiers.errors import ObjectDamaged
from broker.tiers.index_object import encode_index_object
from broker.tiers.manifest import NamedSegment
from broker.tiers.members import MEMBER_BYTES, pack_members
from broker.tiers.object_names import index_object, lines_object, segment_stem
from broker.tiers.store import Store
from tweetwire.files import sync_data

__all__ = ["Verify", "local_seal", "put_verified", "upload_segment"]

_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class Verify(Enum):
    """How an object is verified after its upload: by reading it back, or by its size."""

    READ = "read"
    HEAD = "head"


def upload_segment(store: Store, chain: str, topic: str, segment: Segment, verify: Verify) -> NamedSegment:
    """Upload a sealed segment of a topic.

    Raises FileNotFoundError if retention has removed it meanwhile, OSError, StoreAway, StoreUnusable, ObjectDamaged.
    """
    file = os.open(segment.path, _READ)
    try:
        # With --durability written, the lines may not be on the disk yet. The folder must never be behind its bucket.
        sync_data(file)
        if os.fstat(file).st_size < segment.size:
            raise OSError(EIO, f"{segment.path} ends before its last event; run tweetwire fsck", str(segment.path))
        with mapped(file, segment.size) as data:
            index = _index(segment, data)
            packed = pack_members(_pieces(data))
    finally:
        os.close(file)
    indexed = encode_index_object(index, packed.ends)
    crc, index_crc = crc32c(packed.data), crc32c(indexed)
    stem = segment_stem(segment.first, segment.next, crc32c(indexed, crc))
    put_verified(store, index_object(chain, topic, stem), indexed, verify)
    put_verified(store, lines_object(chain, topic, stem), packed.data, verify)
    return NamedSegment(
        first=segment.first,
        next=segment.next,
        bytes=segment.size,
        first_ms=segment.first_timestamp,
        last_ms=segment.last_timestamp,
        name=stem,
        stored=len(packed.data),
        crc=crc,
        index_bytes=len(indexed),
        index_crc=index_crc,
        seal=_seal_in(index),
    )


def put_verified(store: Store, name: str, data: bytes, verify: Verify) -> None:
    """Write an object and verify it. Raises StoreAway, StoreUnusable, ObjectDamaged."""
    store.put(name, data)
    if verify is Verify.HEAD:
        is_right = store.size_of(name) == len(data)
    else:
        held = store.get(name)
        is_right = held is not None and len(held) == len(data) and crc32c(held) == crc32c(data)
    if not is_right:
        raise ObjectDamaged(f"{store.shown}/{name} does not hold the bytes that were written; uploading it again")


def local_seal(segment: Segment) -> int:
    """Return the seal of a local segment, by which it is compared with one in the bucket. Raises OSError."""
    file = os.open(segment.index_path, _READ)
    try:
        return _seal_in(os.pread(file, SEAL_BYTES, (segment.next - segment.first) * ENTRY_BYTES))
    finally:
        os.close(file)


def _seal_in(index: bytes) -> int:
    return int.from_bytes(index[-SEAL_BYTES:], "little")


def _index(segment: Segment, data: "bytes | mmap") -> bytes:
    """Return the sealed index of a segment. If the file is damaged, make the index from the lines."""
    raw = _read_index(segment.index_path, segment.size)
    entries = unseal(raw)
    if entries is None:
        entries = bytes(Scan(data, raw, segment.first, segment.next).entries)
    return entries + seal_of(entries)


def _read_index(path: Path, size: int) -> bytes:
    file = os.open(path, _READ)
    try:
        return read_index(file, size)
    finally:
        os.close(file)


def _pieces(data: "bytes | mmap") -> Iterator[bytes]:
    for at in range(0, len(data), MEMBER_BYTES):
        yield data[at : at + MEMBER_BYTES]
