"""Looking at a topic's files without changing them: what a start would find, and which lines are not what was written."""

import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from crc32c import crc32c

from broker.log.index import ENTRY_BYTES, decode_entries, seal_of
from broker.log.scan import Scan
from broker.log.segment import Segment

__all__ = ["SegmentCheck", "check_topic", "orphans_of", "repair_topic", "segments_of"]

_RUN: Final = 10_000 * ENTRY_BYTES


@dataclass
class SegmentCheck:
    """A segment as it is: the offsets first … next - 1, its bytes, and what is wrong with it.

    `damaged` are the offsets of lines that are not what was written; events `missing` from `next` on are in no file. The
    faults that a repair can mend are `mendable`: an index, or `excess` bytes behind the last event.
    """

    path: Path
    first: int
    next: int
    size: int
    damaged: list[int] = field(default_factory=list)
    missing: int = 0
    excess: int = 0
    mendable: list[str] = field(default_factory=list)


def segments_of(directory: Path) -> dict[int, Path]:
    """Return a topic's segments by their first offset, in order."""
    found = (path for path in directory.glob("*.jsonl") if path.stem.isdecimal() and len(path.stem) == 20)
    return {int(path.stem): path for path in sorted(found)}


def check_topic(directory: Path) -> Iterator[SegmentCheck]:
    """Read all of a topic's segments, each line and each entry of its index. Raises OSError."""
    segments = segments_of(directory)
    for path, limit in zip(segments.values(), [*segments, None][1:], strict=True):
        yield _check(path, limit)


def repair_topic(directory: Path) -> None:
    """Make indexes again and cut what is behind the last event of a segment, as a start would. Raises OSError."""
    segments = segments_of(directory)
    for first, limit in zip(segments, [*segments, None][1:], strict=True):
        segment = Segment(directory, first)
        try:
            segment.recover(limit)
        finally:
            segment.close()
    for index in orphans_of(directory, segments):
        index.unlink()


def orphans_of(directory: Path, firsts: Iterable[int]) -> list[Path]:
    """Return the indexes that have no segment."""
    known = set(firsts)
    return [path for path in directory.glob("*.index") if path.stem.isdecimal() and int(path.stem) not in known]


def _check(path: Path, limit: int | None) -> SegmentCheck:
    index = path.with_suffix(".index")
    known = index.read_bytes() if index.exists() else b""
    first = int(path.stem)
    with _mapped(path) as data:
        scan = Scan(data, known, first, limit)
        found = SegmentCheck(path, first, scan.next, scan.size, list(_damaged(data, scan, first)))
        found.missing = max(0, limit - scan.next) if limit is not None else 0
        found.excess = len(data) - scan.size
    if found.excess:
        found.mendable.append(f"{found.excess} bytes behind the last event")
    if known != bytes(scan.entries) + (seal_of(scan.entries) if limit is not None else b""):
        found.mendable.append("the index does not fit" if known else "the index is missing")
    return found


def _damaged(data: "bytes | mmap.mmap", scan: Scan, first: int) -> Iterator[int]:
    start, offset = 0, first
    for at in range(0, len(scan.entries), _RUN):
        for entry in decode_entries(bytes(scan.entries[at : at + _RUN])):
            if crc32c(data[start : entry.end]) != entry.crc:
                yield offset
            start, offset = entry.end, offset + 1


@contextmanager
def _mapped(path: Path) -> "Iterator[bytes | mmap.mmap]":
    if path.stat().st_size == 0:
        yield b""
        return
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as data:
            yield data
    finally:
        os.close(file)
