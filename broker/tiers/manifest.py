"""A manifest names all that the bucket holds at one moment. An object that the newest manifest does not name is left over.

Always true of a manifest:

- each object that it names was uploaded and verified before the manifest was written;
- the segments of a topic are in order, and no segment between two of them was left out;
- the state is no newer than the lines: a topic's `next` is at least the end that the topic had when the state was taken.
  So a restore is like a start after a crash at that moment;
- the topics are those of the state, or younger. A topic that was dropped and made again after the state was taken is left
  out until the next state.
"""

from typing import Final

import msgspec
from crc32c import crc32c
from msgspec import Struct

from broker.tiers.errors import ObjectDamaged

__all__ = ["FORMAT", "Manifest", "NamedSegment", "NamedState", "NamedTopic", "decode_manifest", "encode_manifest"]

FORMAT: Final = 1
_CHECK: Final = b',"crc32c":"%08x"}'
_CHECK_BYTES: Final = len(_CHECK % 0)


class NamedSegment(Struct, frozen=True):
    """A segment in the bucket, which holds the offsets `first` … `next` - 1.

    Attributes:
        first: Its first offset.
        next: The offset after its last event.
        bytes: The size of its lines.
        first_ms: The timestamp of its first event (ms).
        last_ms: The timestamp of its last event (ms).
        name: The name of both objects in the topic's folder, without ``.jsonl.gz`` and ``.index``.
        stored: The size of the compressed lines in bytes.
        crc: The crc32c of the compressed lines.
        index_bytes: The size of the object of the index.
        index_crc: The crc32c of the object of the index.
        seal: The crc32c of the entries of the index, by which a local segment is compared.
    """

    first: int
    next: int
    bytes: int
    first_ms: int
    last_ms: int
    name: str
    stored: int
    crc: int
    index_bytes: int
    index_crc: int
    seal: int

    @property
    def events(self) -> int:
        """The number of events."""
        return self.next - self.first


class NamedTopic(Struct, frozen=True):
    """A topic in the bucket.

    Attributes:
        next: Its next event gets this offset or a higher one.
        retention: As in ``retain``.
        segments: Its segments in order.
        log: The id of its log, see `broker.log.log_id`, "" if the release that wrote the manifest had none.
    """

    next: int
    retention: str
    segments: list[NamedSegment]
    log: str = ""


class NamedState(Struct, frozen=True):
    """The object of the state: its name, its size in bytes, its crc32c, and when (ms) the broker was in this state."""

    name: str
    bytes: int
    crc: int
    taken_ms: int


class Manifest(Struct, frozen=True):
    """The content of the bucket at one moment.

    Attributes:
        number: The place in the chain. A manifest is only written by a broker that has read the one before it.
        writer: The process that wrote it, 22 random characters that are made at each start.
        epoch: How often the chain has had another writer.
        release: The release of the writer.
        written_ms: When it was written. It is information, and orders nothing.
        state: The state, None if none was uploaded yet.
        topics: The topics by name.
    """

    format: int
    number: int
    writer: str
    epoch: int
    release: str
    written_ms: int
    state: NamedState | None
    topics: dict[str, NamedTopic]


_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(Manifest).decode


class _Format(Struct):
    format: int


def encode_manifest(manifest: Manifest) -> bytes:
    """Return a manifest as JSON, whose last member is the crc32c of everything before it."""
    body = _encode(manifest)[:-1]
    return body + _CHECK % crc32c(body)


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Return the manifest in the object `name`. Raises ObjectDamaged."""
    body = data[:-_CHECK_BYTES]
    if data[-_CHECK_BYTES:] != _CHECK % crc32c(body):
        raise ObjectDamaged(f"the manifest {name} is damaged")
    try:
        if msgspec.json.decode(data, type=_Format).format != FORMAT:
            raise ObjectDamaged(f"the manifest {name} was written by a later release; use that release or a newer one")
        return _decode(data)
    except msgspec.MsgspecError as error:
        raise ObjectDamaged(f"the manifest {name} cannot be read: {error}") from error
