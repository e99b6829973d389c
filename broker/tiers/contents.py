"""The contents of a chain for people and programs: paths of a topic's segments, orphans, and the check of every object."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

from crc32c import crc32c

from broker.log.index import unseal
from broker.tiers.chain import read_newest
from broker.tiers.chain_file import read_chain_file
from broker.tiers.errors import ObjectDamaged, TierError
from broker.tiers.index_object import decode_index_object
from broker.tiers.leftovers import named_objects
from broker.tiers.location import open_store
from broker.tiers.manifest import Manifest, NamedSegment
from broker.tiers.members import inflate_member
from broker.tiers.object_names import index_object, lines_object, topic_of_object
from broker.tiers.store import Store, StoredObject
from tweetwire.protocol.errors import StartError

__all__ = ["CheckedObject", "Format", "check_chain_of", "check_objects", "find_orphans", "paths_of"]

ORPHAN_MS: Final = 86_400_000
UNKNOWN_TOPIC_MS: Final = 7 * ORPHAN_MS
"""A topic without a manifest may be new, and its first upload may take days."""

Format = Literal["spark", "duckdb"]


class CheckedObject(NamedTuple):
    """A checked object: its name, a word for its contents, its events, its size in bytes, and its fault, "" if it has none."""

    name: str
    holds: str
    events: int
    bytes: int
    fault: str


def paths_of(store: Store, chain: str, manifest: Manifest, topic: str, kind: Format) -> list[str]:
    """Return the URLs of a topic's lines, in the order of their offsets, as Spark or DuckDB reads them."""
    base = store.shown
    if base.startswith("file://"):
        base = base if kind == "spark" else base.removeprefix("file://")
    elif kind == "spark" and base.startswith("s3://"):
        base = base.replace("s3://", "s3a://", 1)
    segments = manifest.topics[topic].segments
    return [f"{base}/{lines_object(chain, topic, segment.name)}" for segment in segments]


def find_orphans(store: Store, chain: str, manifest: Manifest, now_ms: int) -> Iterator[StoredObject]:
    """Yield the objects of a chain that no manifest will name any more. Raises StoreAway, StoreUnusable.

    An object that is younger than a day, or that holds events after those of the manifest, may be about to be named.
    """
    named = named_objects(chain, manifest)
    for part in ("topics", "state", "probe"):
        for found in store.list_objects(f"{chain}/{part}"):
            age_ms = now_ms - found.modified_ms
            if found.name in named or age_ms < ORPHAN_MS:
                continue
            place = topic_of_object(found.name)
            if place is not None and place.topic in manifest.topics:
                if place.first >= manifest.topics[place.topic].next:
                    continue
            elif place is not None and age_ms < UNKNOWN_TOPIC_MS:
                continue
            yield found


def check_chain_of(data_dir: Path, url: str) -> Iterator[CheckedObject]:
    """Check the objects of the chain that a data folder continues. Raises StartError."""
    record = read_chain_file(data_dir)
    if record is None:
        raise StartError(f"{data_dir} has no file tiers/CHAIN, so no broker on it has used --tier")
    store = open_store(url)
    try:
        manifest = read_newest(store, record.chain)
        if manifest is None:
            raise StartError(f"there is no manifest of {record.chain} at {store.shown}")
        yield from check_objects(store, record.chain, manifest)
    except TierError as error:
        raise StartError(f"--tiers: {error}") from error


def check_objects(store: Store, chain: str, manifest: Manifest) -> Iterator[CheckedObject]:
    """Read every object that a manifest names, and yield a finding for each. Raises StoreAway, StoreUnusable."""
    if manifest.state is not None:
        state = manifest.state
        fault = _fault(store.get(state.name), state.bytes, state.crc)
        yield CheckedObject(state.name, "state", 0, state.bytes, fault)
    for topic, named in manifest.topics.items():
        for segment in named.segments:
            yield from _check_segment(store, chain, topic, segment)


def _check_segment(store: Store, chain: str, topic: str, segment: NamedSegment) -> Iterator[CheckedObject]:
    holds = f"@{segment.first} to @{segment.next - 1}"
    name = index_object(chain, topic, segment.name)
    indexed = store.get(name)
    fault, ends = _fault(indexed, segment.index_bytes, segment.index_crc), None
    if not fault and indexed is not None:
        index = decode_index_object(indexed)
        ends = index.ends
        fault = "" if unseal(index.entries) is not None else "damaged"
    yield CheckedObject(name, "an index", 0, segment.index_bytes, fault)
    name = lines_object(chain, topic, segment.name)
    packed = store.get(name)
    fault = _fault(packed, segment.stored, segment.crc)
    if not fault and packed is not None and ends is not None:
        fault = _members_fault(packed, ends, segment.bytes)
    yield CheckedObject(name, holds, segment.events, segment.stored, fault)


def _members_fault(packed: bytes, ends: list[int], size: int) -> str:
    try:
        found = sum(len(inflate_member(packed[start:end])) for start, end in zip([0, *ends[:-1]], ends, strict=True))
    except ObjectDamaged as error:
        return str(error)
    return "" if found == size else f"{found} bytes of lines instead of {size}"


def _fault(data: bytes | None, size: int, crc: int) -> str:
    if data is None:
        return "missing"
    return "" if len(data) == size and crc32c(data) == crc else "damaged"
