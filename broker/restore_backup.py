"""The command ``restore``: write a data directory from a backup, for a broker that starts on it.

The command writes below ``restoring/`` in the directory, and moves the files to their place when all are on the disk. A broker
refuses a directory that still has ``restoring/``.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from broker.data_directory import locked_for_restore, restoring
from broker.journal import Journal
from broker.journal.records import Record, SubscriptionRecord
from broker.log import Batch, CommitLog
from broker.restored_claims import skip_epochs
from tweetwire.cli.backup_form import STATE_FILE, CopiedTopic, Manifest, lines_of, topic_file
from tweetwire.files import make_folder, why
from tweetwire.protocol.errors import StartError

__all__ = ["Restored", "restore_backup"]

BATCH_EVENTS: Final = 4096
BATCH_BYTES: Final = 8 << 20


class Restored(Struct):
    """The result: the numbers of topics and subscriptions, and a sentence for each damage that was found."""

    topics: int = 0
    subscriptions: int = 0
    damage: list[str] = []


class _Place(Struct):
    topic: str
    offset: int
    timestamp: int
    priority: int


_decode_place = msgspec.json.Decoder(_Place).decode
_decode_record = msgspec.json.Decoder(Record).decode


Advance = Callable[[int], None]
"""Called with the number of events of each batch that was written."""


def restore_backup(folder: Path, manifest: Manifest, data_dir: Path, advance: Advance) -> Restored:
    """Write the data directory. Damaged lines of the backup are left out. Raises StartError, and then nothing is written."""
    records, damaged = _records(folder, manifest)
    try:
        with locked_for_restore(data_dir):
            return _Restoring(folder, manifest, data_dir, advance).write(records, damaged)
    except OSError as error:
        raise StartError(f"cannot restore {folder} to {data_dir}: {why(error)}") from error


class _Restoring:
    """Writes the data directory, and notes the damage of the backup."""

    def __init__(self, folder: Path, manifest: Manifest, data_dir: Path, advance: Advance) -> None:
        self._folder = folder
        self._manifest = manifest
        self._data_dir = data_dir
        self._advance = advance
        self._done = Restored(topics=len(manifest.topics))

    def write(self, records: list[Record], damaged: int) -> Restored:
        """Write the logs and the state. `damaged` records of the state are left out. Raises OSError, StartError."""
        with restoring(self._data_dir) as new:
            make_folder(new / "topics")
            for topic in self._manifest.topics:
                self._write_topic(new / "topics" / topic.topic, topic)
            _write_state(new / "state", records)
        topics = {topic.topic for topic in self._manifest.topics}
        self._done.subscriptions = sum(isinstance(one, SubscriptionRecord) and one.topic in topics for one in records)
        if damaged:
            self._done.damage.append(f"{damaged:,} records of the state are damaged or missing")
        return self._done

    def _write_topic(self, directory: Path, topic: CopiedTopic) -> None:
        events = 0
        with closing(CommitLog(directory, now_ms=time.time_ns() // 1_000_000)) as log:
            for batch in _batches(self._folder, topic):
                if batch.first > log.next:
                    _skip(log, batch.first)
                log.append(batch)
                events += len(batch.lines)
                self._advance(len(batch.lines))
            if topic.next > log.next:
                _skip(log, topic.next)
        if events != topic.events:
            self._done.damage.append(f"{topic.events - events:,} events of {topic.topic} are damaged or missing")


def _records(folder: Path, manifest: Manifest) -> tuple[list[Record], int]:
    """Return the records of the state, and the number of those that are damaged or missing. Raises StartError."""
    try:
        bodies = [body for body in lines_of(folder / STATE_FILE) if body is not None]
        return [_decode_record(body) for body in bodies], max(0, manifest.records - len(bodies))
    except OSError as error:
        raise StartError(f"cannot read the state in the backup {folder}: {why(error)}") from error
    except msgspec.MsgspecError as error:
        raise StartError(
            f"the state in the backup {folder} was written by release {manifest.release} and cannot be read by this one:"
            f" {error}"
        ) from error


def _write_state(directory: Path, records: list[Record]) -> None:
    with closing(Journal(directory)) as journal:
        journal.write_snapshot(journal.begin_generation(), skip_epochs(records))


def _skip(log: CommitLog, offset: int) -> None:
    """Continue a log at an offset. A log without events begins there."""
    is_empty = not log.size
    log.skip_to(offset)
    if is_empty:
        log.forget_below(offset)


def _batches(folder: Path, topic: CopiedTopic) -> Iterator[Batch]:
    """Yield the intact events of a topic in batches with consecutive offsets, whose dates never decrease."""
    batch = Batch(0)
    size = 0
    for place, line in _intact(folder, topic):
        follows = place.offset == batch.next and (not batch.lines or place.timestamp >= batch.timestamps[-1])
        if not follows or len(batch.lines) == BATCH_EVENTS or size >= BATCH_BYTES:
            if batch.lines:
                yield batch
            batch, size = Batch(place.offset), 0
        batch.lines.append(line)
        batch.timestamps.append(place.timestamp)
        batch.priorities.append(place.priority)
        size += len(line)
    if batch.lines:
        yield batch


def _intact(folder: Path, topic: CopiedTopic) -> Iterator[tuple[_Place, bytes]]:
    """Yield the events that are at their place: in this topic, after the previous event, and below the topic's end."""
    path = topic_file(folder, topic.topic)
    after = 0
    for body in lines_of(path) if path.exists() else ():
        try:
            place = None if body is None else _decode_place(body)
        except msgspec.MsgspecError:
            place = None
        if body is not None and place is not None and place.topic == topic.topic and after <= place.offset < topic.next:
            after = place.offset + 1
            yield place, body + b"\n"
