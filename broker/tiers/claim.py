"""Claim the chain of a data folder at a start, which fences every earlier writer.

A folder owns its chain if two things are true. One of the folder's own writers has written the newest manifest, see
`broker.tiers.chain_file`. And the folder's logs hold everything that this manifest names. For a copy of a folder, one of
these is false once the original has continued.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import structlog
from crc32c import crc32c

from broker.core import Topic
from broker.identity import new_identity
from broker.log import CommitLog
from broker.log.index import SEAL_BYTES, decode_entries
from broker.tiers.chain import Chain, read_newest
from broker.tiers.chain_file import ChainFile, read_chain_file, write_chain_file
from broker.tiers.errors import Fenced
from broker.tiers.index_object import decode_index_object
from broker.tiers.manifest import FORMAT, Manifest, NamedSegment, NamedTopic
from broker.tiers.object_names import index_object
from broker.tiers.segment_upload import local_seal
from broker.tiers.store import Store
from tweetwire.version import VERSION

__all__ = ["Claimed", "OwnedChain", "claim_chain", "continue_chain", "held_segments"]

WRITERS_KEPT: Final = 16
"""How many earlier writers a folder knows. A killed process may leave a request that arrives after the next start."""


logger = structlog.stdlib.get_logger()


class Claimed(NamedTuple):
    """A chain that this process owns, and its newest manifest, which this process has written."""

    chain: Chain
    newest: Manifest


class OwnedChain(NamedTuple):
    """A claimed chain, its newest manifest, and the local segments that this manifest names."""

    chain: Chain
    newest: Manifest
    held: list[tuple[Topic, NamedSegment]]


def claim_chain(store: Store, data_dir: Path, identity: str, logs: Mapping[str, CommitLog]) -> Claimed:
    """Claim the chain of a folder, or begin a chain with the folder's identity as its name.

    `logs` has the logs of the folder's topics by name.

    Raises Fenced if the chain belongs to another folder by now, StoreAway, StoreUnusable, ObjectDamaged, OSError, StartError.
    """
    while True:
        record = read_chain_file(data_dir) or ChainFile(identity, [], 0)
        newest = read_newest(store, record.chain, record.number)
        if newest is not None:
            _check_owner(store, record, newest, logs)
        elif record.number:
            logger.warning("the tier has nothing of this folder; uploading everything", tier=store.shown)
        try:
            return continue_chain(store, data_dir, record, newest)
        except Fenced as fenced:
            # A request of an earlier process of this folder may have arrived late.
            if str(fenced) not in record.writers:
                raise


def continue_chain(store: Store, data_dir: Path, record: ChainFile, newest: Manifest | None) -> Claimed:
    """Write the manifest after `newest` with its content, as a new writer, which the folder's chain file then names, too.

    `record` is the folder's chain file until now. Raises Fenced, StoreAway, StoreUnusable, ObjectDamaged, OSError.
    """
    writer = new_identity()
    # Further claims may fail before they write a manifest. The newest one must stay recognised as the folder's own.
    owner = [one for one in record.writers if newest is not None and one == newest.writer]
    others = [one for one in record.writers if one not in owner]
    writers = [*owner, *others[-WRITERS_KEPT:], writer]
    chain = Chain(store, record.chain, writer, _noting(data_dir, record, writers))
    chain.begin(newest)
    content = newest or Manifest(FORMAT, 0, "", 0, "", 0, None, {})

    def make(number: int) -> Manifest:
        return msgspec.structs.replace(
            content,
            number=number,
            writer=writer,
            epoch=chain.epoch,
            release=VERSION,
            written_ms=time.time_ns() // 1_000_000,
        )

    return Claimed(chain, chain.append(make))


def held_segments(newest: Manifest, topics: Iterable[Topic]) -> list[tuple[Topic, NamedSegment]]:
    """Return the local segments that a manifest names. The same offsets with other content are not the same segment.

    Raises OSError.
    """
    held: list[tuple[Topic, NamedSegment]] = []
    for topic in topics:
        named = newest.topics.get(topic.name)
        by_first = {} if named is None else {one.first: one for one in named.segments}
        for segment in topic.log.segments[:-1] if isinstance(topic.log, CommitLog) else ():
            found = by_first.get(segment.first)
            if found is not None and found.next == segment.next and found.seal == local_seal(segment):
                held.append((topic, found))
    return held


def _noting(data_dir: Path, record: ChainFile, writers: list[str]) -> Callable[[int], None]:
    # With another --tier the numbers begin at 1 again, but the manifests of the first place are still this folder's own.
    return lambda number: write_chain_file(data_dir, ChainFile(record.chain, writers, max(number, record.number)))


def _check_owner(store: Store, record: ChainFile, newest: Manifest, logs: Mapping[str, CommitLog]) -> None:
    """Raise Fenced if another folder has written the newest manifest."""
    if newest.writer not in record.writers or newest.number > record.number + 1:
        raise Fenced(newest.writer)
    for name, named in newest.topics.items():
        log = logs.get(name)
        if log is None or log.next >= named.next:
            continue
        if log.id == named.log != "" or _is_behind(store, record.chain, name, named, log):
            raise Fenced(newest.writer)


def _is_behind(store: Store, chain: str, topic: str, named: NamedTopic, log: CommitLog) -> bool:
    """Return whether the last event of a log is in the bucket, too.

    If not, the topic was dropped and made again after the manifest was written.
    """
    lines, after, _ = log.read(log.next - 1, 1, 1)
    segment = next((one for one in named.segments if one.first < after <= one.next), None)
    if not lines or segment is None:
        return False
    data = store.get(index_object(chain, topic, segment.name))
    if data is None:
        return False
    entries = decode_entries(decode_index_object(data).entries[:-SEAL_BYTES])
    return entries[after - 1 - segment.first].crc == crc32c(lines[0])
