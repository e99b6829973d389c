"""Restore a data folder from a bucket: take over the chain, and fetch the segments and the state that its manifest names.

The order:

1. Read the newest manifest and its state, and look whether the disk has room. A restore that must fail changes nothing.
2. Claim the next number. From then on the broker that wrote the manifest can upload nothing more, and nothing that the
   manifest names is removed.
3. Fetch everything into ``restoring/`` in the folder, verified. A broker refuses the folder until this is removed.
4. Move it to its place, and remove ``restoring/``.

A restore that was interrupted is repeated from the beginning. The folder gets a new identity, since events that the old
broker has confirmed may be missing: other systems must not mistake the new broker for the old one.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.data_directory import locked_for_restore, restoring
from broker.journal.records import SubscriptionRecord
from broker.journal.snapshot import encode_snapshot, parse_snapshot
from broker.log.index import unseal
from broker.log.names import index_path, segment_path
from broker.restored_claims import skip_epochs
from broker.tiers.chain import find_chain, read_newest
from broker.tiers.chain_file import ChainFile
from broker.tiers.claim import continue_chain
from broker.tiers.errors import Fenced, ObjectDamaged, TierError
from broker.tiers.index_object import IndexObject, decode_index_object
from broker.tiers.manifest import Manifest, NamedSegment, NamedState, NamedTopic
from broker.tiers.members import inflate_member, inflate_members
from broker.tiers.object_names import index_object, lines_object
from broker.tiers.probe import probe_store
from broker.tiers.store import Store
from tweetwire.files import FILE_MODE, make_folder, sync_data, sync_directory, why, write_all
from tweetwire.protocol.errors import StartError
from tweetwire.protocol.names import is_name

__all__ = ["RestoredTier", "restore_tier"]

_STATE: Final = "state"
_TOPICS: Final = "topics"
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW

Advance = Callable[[int], None]
"""Called with the number of events of each segment that was fetched."""


class RestoredTier(NamedTuple):
    """The result: how many topics and subscriptions there are, and a sentence for each segment that could not be fetched."""

    topics: int
    subscriptions: int
    damage: list[str]


def restore_tier(store: Store, chain: str | None, data_dir: Path, advance: Advance) -> RestoredTier:
    """Write a data folder from a bucket, and fence the broker that has uploaded to it.

    Without `chain`, the bucket must hold the data of one broker. Raises StartError, and then the folder holds no data.
    """
    try:
        with locked_for_restore(data_dir):
            return _restore(store, chain or find_chain(store), data_dir, advance)
    except Fenced as error:
        raise StartError(
            f"another broker or restore has taken over {store.shown} meanwhile; run the restore again"
        ) from error
    except TierError as error:
        raise StartError(f"cannot restore: {error}") from error
    except OSError as error:
        raise StartError(f"cannot restore {store.shown} to {data_dir}: {why(error)}") from error


def _restore(store: Store, chain: str, data_dir: Path, advance: Advance) -> RestoredTier:
    newest = read_newest(store, chain)
    if newest is None:
        raise StartError(f"there is no manifest of {chain} at {store.shown}")
    if newest.state is None:
        raise StartError(f"{store.shown} has no state of {chain} yet, since its first upload was not completed")
    _check_names(newest)
    # A restore must fence the old broker, so a store that cannot fence is refused.
    probe_store(store, chain)
    state, subscriptions = _read_state(store, newest.state, set(newest.topics))
    _check_room(newest, data_dir)
    with restoring(data_dir) as new:
        # The file that names the chain is in the new folder until all is fetched.
        manifest = continue_chain(store, new, ChainFile(chain, [newest.writer], 0), newest).newest
        damage: list[str] = []
        make_folder(new / _TOPICS)
        fetching = _Fetching(store, chain, advance)
        for name, topic in manifest.topics.items():
            damage += fetching.fetch_topic(name, topic, new / _TOPICS / name)
        make_folder(new / _STATE)
        _write_file(new / _STATE / "snapshot", (state,))
        sync_directory(new / _STATE)
    return RestoredTier(len(manifest.topics), subscriptions, damage)


def _check_names(manifest: Manifest) -> None:
    """Refuse names that lead out of the folder. Raises ObjectDamaged."""
    for topic in manifest.topics:
        if not is_name(topic):
            raise ObjectDamaged(f"manifest {manifest.number} names a topic {topic[:40]!a}, which is not a valid name")


class _Fetching:
    """Fetches the segments of a chain into new folders."""

    def __init__(self, store: Store, chain: str, advance: Advance) -> None:
        self._store = store
        self._chain = chain
        self._advance = advance

    def fetch_topic(self, name: str, topic: NamedTopic, directory: Path) -> Iterator[str]:
        """Fetch the segments of a topic, and yield a sentence for each that is damaged or missing.

        Raises OSError, StoreAway, StoreUnusable.
        """
        make_folder(directory)
        for segment in topic.segments:
            try:
                self._fetch_segment(name, segment, directory)
            except ObjectDamaged as error:
                yield f"@{segment.first} to @{segment.next - 1} of {name} are lost: {error}"
            self._advance(segment.events)
        # Make the open segment, so that new events get the offsets after those of the manifest.
        for path in (segment_path(directory, topic.next), index_path(segment_path(directory, topic.next))):
            _write_file(path, ())
        sync_directory(directory)

    def _fetch_segment(self, topic: str, segment: NamedSegment, directory: Path) -> None:
        """Fetch one segment. Raises ObjectDamaged, and then leaves no file.

        Without an index, the lines are fetched alone. The broker makes an index of them at its start.
        """
        index = self._fetch_index(topic, segment)
        name = lines_object(self._chain, topic, segment.name)
        packed = _verified(self._store, name, segment.stored, segment.crc)
        path = segment_path(directory, segment.first)
        try:
            pieces = inflate_members(packed) if index is None else _members(packed, index.ends)
            size = _write_file(path, pieces)
            if size != segment.bytes:
                raise ObjectDamaged(f"{name} has {size} bytes of lines instead of {segment.bytes}")
        except ObjectDamaged:
            path.unlink(missing_ok=True)
            raise
        if index is not None:
            _write_file(index_path(path), (index.entries,))

    def _fetch_index(self, topic: str, segment: NamedSegment) -> IndexObject | None:
        """Return the index of a segment, None if it is damaged or missing. Raises StoreAway, StoreUnusable."""
        name = index_object(self._chain, topic, segment.name)
        try:
            index = decode_index_object(_verified(self._store, name, segment.index_bytes, segment.index_crc))
        except ObjectDamaged:
            return None
        return None if unseal(index.entries) is None else index


def _members(packed: bytes, ends: list[int]) -> Iterator[bytes]:
    start = 0
    for end in ends:
        yield inflate_member(packed[start:end])
        start = end


def _check_room(manifest: Manifest, data_dir: Path) -> None:
    """Raise StartError if the disk has no room for the segments that a manifest names. Raises OSError."""
    needed = sum(one.bytes + one.index_bytes for topic in manifest.topics.values() for one in topic.segments)
    free = shutil.disk_usage(data_dir).free
    if free < needed:
        raise StartError(f"the data needs {needed} bytes, and the disk of {data_dir} has {free} bytes free")


def _read_state(store: Store, state: NamedState, topics: set[str]) -> tuple[bytes, int]:
    """Return the state and the number of its subscriptions. Raises ObjectDamaged, StoreAway, StoreUnusable."""
    data = _verified(store, state.name, state.bytes, state.crc)
    snapshot = parse_snapshot(data)
    if not snapshot.is_whole:
        raise ObjectDamaged(f"the state {state.name} was written by a later release; restore with that release")
    return encode_snapshot(snapshot.journal, skip_epochs(snapshot.records)), sum(
        isinstance(one, SubscriptionRecord) and one.topic in topics for one in snapshot.records
    )


def _verified(store: Store, name: str, size: int, crc: int) -> bytes:
    """Return the bytes of an object. Raises ObjectDamaged if they are not those that the manifest names."""
    data = store.get(name)
    if data is None:
        raise ObjectDamaged(f"{store.shown}/{name} is missing")
    if len(data) != size or crc32c(data) != crc:
        raise ObjectDamaged(f"{store.shown}/{name} is damaged")
    return data


def _write_file(path: Path, pieces: "Iterator[bytes] | tuple[bytes, ...]") -> int:
    """Write a new file, and wait until the disk has it. Returns its size. Raises OSError."""
    file = os.open(path, _WRITE, FILE_MODE)
    try:
        size = 0
        for piece in pieces:
            write_all(file, piece)
            size += len(piece)
        sync_data(file)
    finally:
        os.close(file)
    return size
