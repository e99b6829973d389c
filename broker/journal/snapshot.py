"""A snapshot: the whole state at the moment when a journal began.

Its first and last line name that journal, so a missing line shows that the snapshot is incomplete.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from broker.journal.lines import Generation, parse_line, record_line
from broker.journal.records import Record
from tweetwire.files import FILE_MODE, read_file, replace_file

__all__ = ["Snapshot", "encode_snapshot", "parse_snapshot", "read_snapshot", "replace_snapshot"]


class Snapshot(NamedTuple):
    """The records of a snapshot, the first journal that continues it (0 if unknown), and whether the snapshot is whole."""

    records: list[Record]
    journal: int
    is_whole: bool


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot, skipping damaged lines. Raises OSError."""
    return parse_snapshot(read_file(path))


def parse_snapshot(data: bytes) -> Snapshot:
    """Return the snapshot in the bytes of a file, skipping damaged lines."""
    lines = [parse_line(line) for line in data.splitlines()]
    head, end = (lines[0], lines[-1]) if len(lines) > 1 else (None, None)
    records = [line for line in lines if line is not None and not isinstance(line, Generation)]
    is_whole = isinstance(head, Generation) and head == end and None not in lines
    return Snapshot(records, head.journal if isinstance(head, Generation) else 0, is_whole)


def replace_snapshot(directory: Path, generation: int, records: Iterable[Record]) -> None:
    """Replace the snapshot in a folder atomically, and keep the previous one. Raises OSError."""
    data = encode_snapshot(generation, records)
    replace_file(directory / "snapshot", data, mode=FILE_MODE, kept_as=directory / "snapshot.before")


def encode_snapshot(generation: int, records: Iterable[Record]) -> bytes:
    """Return the bytes of a snapshot that the journal `generation` continues."""
    mark = record_line(Generation(generation))
    return mark + b"".join(map(record_line, records)) + mark
