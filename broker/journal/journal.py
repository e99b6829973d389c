"""The durable state of the broker, except for the events: a snapshot, and the journals that continue it.

Each record is appended to a journal as one line: its crc32c, then its JSON. From time to time the whole state is written
as a snapshot and the next journal begins. The snapshot names this journal. Always true:

- the snapshot plus all records of the journals from the named one on, each applied once, give the state;
- the same holds for the previous snapshot, which is kept in case the newer one is damaged;
- a damaged snapshot is set aside, a damaged line is skipped, and both are counted. Neither prevents a start.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from broker.journal.lines import Generation, parse_line, record_line
from broker.journal.records import Record
from broker.journal.snapshot import Snapshot, read_snapshot, replace_snapshot
from tweetwire.files import FILE_MODE, make_folder, read_file, sync_data, sync_directory

__all__ = ["Journal", "Restored"]

_LINE_FEED: Final = ord("\n")


@dataclass
class Restored:
    """The records that were read, in order, and the damage that was found."""

    records: list[Record] = field(default_factory=list)
    damaged_lines: int = 0
    set_aside: list[str] = field(default_factory=list)


class Journal:
    """The folder ``state``. Call `append` on the event loop, since it is fast; call `sync` and `write_snapshot` in a thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        make_folder(directory)
        self._generation = max(self._generations(), default=0) + 1
        self._journal = self._open_journal()
        self.journal_bytes = 0
        # The bytes that a full disk refused. The next append continues with them, possibly in the middle of a line.
        self._untaken = bytearray()
        self._is_line_cut = False
        # The earlier journals that are not synced. They are needed until a snapshot holds their records.
        self._ended: list[int] = []
        self._snapshot_generation = 0

    def restore(self) -> Restored:
        """Read the snapshot and the journals that continue it."""
        restored = Restored()
        first = self._snapshot_generation = self._read_snapshots(restored)
        for generation in sorted(self._generations()):
            if first <= generation < self._generation:
                self._read_journal(generation, restored)
        return restored

    def append(self, records: Iterable[Record]) -> None:
        """Write records to the operating system, after the bytes that it refused before. Raises OSError."""
        self._untaken += b"".join(map(record_line, records))
        while self._untaken:
            written = os.write(self._journal, self._untaken)
            self.journal_bytes += written
            self._is_line_cut = self._untaken[written - 1] != _LINE_FEED
            del self._untaken[:written]

    @property
    def untaken_bytes(self) -> int:
        """The number of bytes that wait in memory because the disk refused them."""
        return len(self._untaken)

    def drop_untaken(self) -> None:
        """Drop the refused bytes, except the rest of a half-written line. Only a snapshot can then store the whole state."""
        rest = self._untaken.find(b"\n") + 1 if self._is_line_cut else 0
        del self._untaken[rest:]

    def sync(self) -> None:
        """Wait until all appended records are on the disk.

        Raises OSError. The records appended until then may be lost, so the caller must write a snapshot.
        """
        while self._ended:
            sync_data(self._ended[0])
            os.close(self._ended.pop(0))
        sync_data(self._journal)

    def begin_generation(self) -> int:
        """Begin a new journal and return its number. The snapshot of the current state must name it. Raises OSError."""
        self.append(())
        before = self._journal
        self._generation += 1
        self._journal = self._open_journal()
        self._ended.append(before)
        self.journal_bytes = 0
        return self._generation

    def write_snapshot(self, generation: int, records: Iterable[Record]) -> None:
        """Replace the snapshot atomically, and remove the journals that the previous snapshot does not need. Raises OSError."""
        replace_snapshot(self.directory, generation, records)
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
        journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        sync_directory(self.directory)
        return journal

    def _read_snapshots(self, restored: Restored) -> int:
        """Read the newest snapshot that is whole, or else the readable part of the oldest. Returns its first journal."""
        found: list[Snapshot] = []
        for path in (self.directory / "snapshot", self.directory / "snapshot.before"):
            if path.exists():
                found.append(read_snapshot(path))
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
        for line in read_file(self._journal_path(generation)).splitlines():
            record = parse_line(line)
            if record is None:
                restored.damaged_lines += 1
            elif not isinstance(record, Generation):
                restored.records.append(record)
