"""What must outlive the broker beside the events: subscriptions, what they settled, producers' checkpoints, documentation.

Records are appended to a journal, one JSON line each behind its crc32c. Now and then the whole state is written as a
snapshot and the next journal begun; the snapshot names the first journal that goes on from it. Always true: replaying the
journals over the snapshot, from the first one named, each record once, gives the state; and so it is with the snapshot
before it, which is kept for the day when the newer one is damaged. A snapshot or line that is damaged is set aside or
skipped, counted, and never stops a start.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec
from crc32c import crc32c
from msgspec import Struct

from broker.failures import Attempts, Failure
from broker.files import sync_directory
from broker.protocol.policy import Policy
from broker.protocol.retention import Retention

__all__ = [
    "CheckpointRecord",
    "ClientRecord",
    "CommentRecord",
    "DeadRecord",
    "DescriptionRecord",
    "DocumentationChange",
    "FailedRecord",
    "FinishedRecord",
    "HandshakeRecord",
    "HeldRecord",
    "PolicyRecord",
    "ProducersRecord",
    "Record",
    "RedrivenRecord",
    "ReleasedRecord",
    "Restored",
    "RetentionRecord",
    "SchemaRecord",
    "SettledRecord",
    "State",
    "SubscriptionChange",
    "SubscriptionRecord",
    "TakenRecord",
    "TopicRecord",
    "UnsubscribedRecord",
    "cut_torn_end",
    "damaged_lines",
    "is_whole_snapshot",
]


class SubscriptionRecord(Struct, tag="subscription"):
    """A durable subscription as it stands, begun at offset `start`.

    Everything below a priority's floor is settled, save what is `open` or `dead`; priorities without a floor of their own
    have `floor`. `dead` holds (offset, offset of its dead letter), `attempts` what failed of what is open or dead.
    """

    topic: str
    name: str
    start: int
    floor: int
    floors: dict[int, int]
    policy: Policy
    open: list[int] = []
    dead: list[tuple[int, int]] = []
    attempts: dict[int, Attempts] = {}


class SettledRecord(Struct, tag="settled"):
    """What a subscription has settled: by priority, runs first…last of neighbours in that priority's lane."""

    topic: str
    name: str
    runs: dict[int, list[tuple[int, int]]]


class FailedRecord(Struct, tag="failed"):
    """An open event with one more failed try."""

    topic: str
    name: str
    offset: int
    failure: Failure
    is_strike: bool


class DeadRecord(Struct, tag="dead"):
    """An event given up on; its dead letter is at offset `letter`."""

    topic: str
    name: str
    offset: int
    priority: int
    letter: int


class RedrivenRecord(Struct, tag="redriven"):
    """Dead events that wait again."""

    topic: str
    name: str
    offsets: list[int]


class PolicyRecord(Struct, tag="policy"):
    """A subscription's policy that was changed."""

    topic: str
    name: str
    policy: Policy


class ClientRecord(Struct, tag="client"):
    """What a named client was attached to when it last was: (topic, subscription, prefetch)."""

    client: str
    attached: list[tuple[str, str, int]]


class UnsubscribedRecord(Struct, tag="unsubscribed"):
    """A durable subscription that was ended."""

    topic: str
    name: str


class CheckpointRecord(Struct, tag="checkpoint"):
    """A producer's checkpoint that came without an event, after the event at `offset` (-1 for none)."""

    topic: str
    producer: str
    offset: int
    value: str


class ProducersRecord(Struct, tag="producers"):
    """All producers of a topic, {name: (offset, sequence, checkpoint)}, as of the log up to offset `scanned`."""

    topic: str
    scanned: int
    table: dict[str, tuple[int, int | None, str | None]]


class DescriptionRecord(Struct, tag="description"):
    """What a topic is for."""

    topic: str
    text: str


class SchemaRecord(Struct, tag="schema"):
    """The JSON Schema that a topic's events must meet, None for none."""

    topic: str
    schema: str | None


class CommentRecord(Struct, tag="comment"):
    """A remark on a topic: when (ms) and by which client it was made."""

    topic: str
    at: int
    client: str
    text: str


class RetentionRecord(Struct, tag="retention"):
    """How long a topic's events stay."""

    topic: str
    retention: Retention


class HeldRecord(Struct, tag="held"):
    """A message that is held for a client until it is released; `event` is its JSON."""

    client: str
    topic: str
    event: str


class ReleasedRecord(Struct, tag="released"):
    """A message that was held and is to stand at `offset` of its log, which tells whether it does unless `is_stored` is set."""

    client: str
    topic: str
    id: str
    offset: int
    is_stored: bool = False


class TakenRecord(Struct, tag="taken"):
    """An event that a client has on its disk, and which is given to nobody again."""

    client: str
    topic: str
    name: str
    offset: int
    id: str


class FinishedRecord(Struct, tag="finished"):
    """An event that a client has taken and is done with."""

    client: str
    topic: str
    name: str
    offset: int


class _Generation(Struct, tag="generation"):
    journal: int


SubscriptionChange: TypeAlias = (
    SettledRecord | FailedRecord | DeadRecord | RedrivenRecord | PolicyRecord | UnsubscribedRecord
)
DocumentationChange: TypeAlias = DescriptionRecord | SchemaRecord | CommentRecord
HandshakeRecord: TypeAlias = HeldRecord | ReleasedRecord | TakenRecord | FinishedRecord
TopicRecord: TypeAlias = (
    SubscriptionRecord
    | SubscriptionChange
    | CheckpointRecord
    | ProducersRecord
    | ClientRecord
    | DocumentationChange
    | RetentionRecord
)
Record: TypeAlias = TopicRecord | HandshakeRecord

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record | _Generation).decode
_CRC_DIGITS: Final = 8


@dataclass
class Restored:
    """What the disk held: the records in their order, and what could not be read."""

    records: list[Record] = field(default_factory=list)
    damaged_lines: int = 0
    set_aside: list[str] = field(default_factory=list)


class State:
    """The folder ``state``. `append` is quick and for the event loop; `sync` and `write_snapshot` are for a thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        if not directory.exists():
            directory.mkdir(parents=True)
            sync_directory(directory.parent)
        self._generation = max(self._generations(), default=0) + 1
        self._journal = self._open_journal()
        self.journal_bytes = 0
        # What a full disk did not take; the next append goes on in the middle of a line, just where the last one ended.
        self._untaken = bytearray()
        # Journals that were turned from and not synced; until a snapshot has what they tell, they are the state's.
        self._ended: list[int] = []
        self._snapshot_generation = 0

    def restore(self) -> Restored:
        """Read the snapshot and the journals that go on from it."""
        restored = Restored()
        first = self._snapshot_generation = self._read_snapshots(restored)
        for generation in sorted(self._generations()):
            if first <= generation < self._generation:
                self._read_journal(generation, restored)
        return restored

    def append(self, records: Iterable[Record]) -> None:
        """Give records to the operating system, in order, those first that it did not take before. Raises OSError."""
        self._untaken += b"".join(map(_line, records))
        while self._untaken:
            written = os.write(self._journal, self._untaken)
            self.journal_bytes += written
            del self._untaken[:written]

    def sync(self) -> None:
        """Wait until everything appended is on the disk.

        Raises OSError, and then only a snapshot can be trusted to hold what was appended until now.
        """
        while self._ended:
            os.fdatasync(self._ended[0])
            os.close(self._ended.pop(0))
        os.fdatasync(self._journal)

    def begin_generation(self) -> int:
        """Turn to a new journal; the snapshot of the state at this moment goes with its number. Raises OSError."""
        self.append(())
        before = self._journal
        self._generation += 1
        self._journal = self._open_journal()
        self._ended.append(before)
        self.journal_bytes = 0
        return self._generation

    def write_snapshot(self, generation: int, records: Iterable[Record]) -> None:
        """Replace the snapshot in one step; what the one before it needs stays. Raises OSError."""
        new = self.directory / "snapshot.new"
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            mark = _line(_Generation(generation))
            _write_all(handle, mark + b"".join(map(_line, records)) + mark)
            os.fsync(handle)
        except OSError:
            # On a full disk, half a snapshot is room that the journal needs.
            new.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)
        snapshot = self.directory / "snapshot"
        if snapshot.exists():
            snapshot.rename(self.directory / "snapshot.before")
        new.rename(snapshot)
        sync_directory(self.directory)
        while self._ended:
            os.close(self._ended.pop())
        for old in self._generations():
            if old < self._snapshot_generation:
                self._journal_path(old).unlink(missing_ok=True)
        self._snapshot_generation = generation

    def close(self) -> None:
        """Close the journals."""
        for journal in (*self._ended, self._journal):
            os.close(journal)
        self._ended.clear()

    def _generations(self) -> list[int]:
        return [int(path.suffix[1:]) for path in self.directory.glob("journal.*") if path.suffix[1:].isdecimal()]

    def _journal_path(self, generation: int) -> Path:
        return self.directory / f"journal.{generation:08d}"

    def _open_journal(self) -> int:
        path = self._journal_path(self._generation)
        journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        sync_directory(self.directory)
        return journal

    def _read_snapshots(self, restored: Restored) -> int:
        """Take the newest snapshot that is whole, else what can be read of the oldest; returns its first journal."""
        found: list[_Snapshot] = []
        for path in (self.directory / "snapshot", self.directory / "snapshot.before"):
            if path.exists():
                found.append(_read_snapshot(path))
                if found[-1].is_whole:
                    break
                aside = path.with_name(f"{path.name}.damaged-{self._generation}")
                path.rename(aside)
                restored.set_aside.append(aside.name)
        if not found:
            return 0
        restored.records += found[-1].records
        return found[-1].journal

    def _read_journal(self, generation: int, restored: Restored) -> None:
        for line in self._journal_path(generation).read_bytes().splitlines():
            record = _parse(line)
            if record is None:
                restored.damaged_lines += 1
            elif not isinstance(record, _Generation):
                restored.records.append(record)


def _line(record: Record | _Generation) -> bytes:
    body = _encode(record)
    return b"%08x %b\n" % (crc32c(body), body)


def _parse(line: bytes) -> "Record | _Generation | None":
    crc, body = line[:_CRC_DIGITS], line[_CRC_DIGITS + 1 :]
    try:
        return _decode(body) if int(crc, 16) == crc32c(body) else None
    except (ValueError, msgspec.MsgspecError):
        return None


class _Snapshot(NamedTuple):
    """What a snapshot holds, the first journal that goes on from it (0 where that is not known), and whether it is whole."""

    records: list[Record]
    journal: int
    is_whole: bool


def _read_snapshot(path: Path) -> _Snapshot:
    lines = [_parse(line) for line in path.read_bytes().splitlines()]
    head, end = (lines[0], lines[-1]) if len(lines) > 1 else (None, None)
    records = [line for line in lines if line is not None and not isinstance(line, _Generation)]
    is_whole = isinstance(head, _Generation) and head == end and None not in lines
    return _Snapshot(records, head.journal if isinstance(head, _Generation) else 0, is_whole)


def is_whole_snapshot(path: Path) -> bool:
    """Whether a snapshot is as it was written."""
    return _read_snapshot(path).is_whole


def damaged_lines(path: Path) -> tuple[int, int, bool]:
    """Return how many records a journal or snapshot holds, how many lines are damaged, and whether its end is torn."""
    *lines, rest = path.read_bytes().split(b"\n")
    good = sum(_parse(line) is not None for line in lines)
    return good, len(lines) - good, bool(rest)


def cut_torn_end(path: Path) -> None:
    """Take away the last record of a journal if it was not written to its end. Raises OSError."""
    os.truncate(path, path.read_bytes().rfind(b"\n") + 1)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
