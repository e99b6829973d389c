"""Check a topic's files without changing them: report what recovery would change, and which lines are damaged."""

import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from crc32c import crc32c

from broker.log.index import ENTRY_BYTES, decode_entries, seal_of
from broker.log.names import index_path, index_paths, segment_paths
from broker.log.open_files import OpenFiles
from broker.log.reading import mapped, read_index
from broker.log.scan import Scan
from broker.log.segment import Segment
from tweetwire.files import end_of_data, refuse_other_kinds

__all__ = ["SegmentCheck", "check_topic", "orphans_of", "repair_topic", "segments_of", "strange_files"]

_RUN: Final = 10_000 * ENTRY_BYTES


@dataclass
class SegmentCheck:
    """The findings about one segment, which holds the offsets `first` … `next` - 1 in `size` bytes.

    - `damaged`: the offsets of damaged lines.
    - `missing`: how many events from offset `next` on are in no file.
    - `excess`: bytes after the last event.
    - `mendable`: the faults that a repair can mend, which are a wrong index and excess bytes.
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
    return {
        first: path for first, path in segment_paths(directory).items() if is_plain(path) and is_plain(index_path(path))
    }


def check_topic(directory: Path) -> Iterator[SegmentCheck]:
    """Yield the findings about each segment of a topic, after reading all its lines and its index. Raises OSError."""
    segments = segments_of(directory)
    for path, limit in zip(segments.values(), [*segments, None][1:], strict=True):
        yield _check(path, limit)


def repair_topic(directory: Path) -> None:
    """Rebuild indexes and cut the bytes after a segment's last event, as recovery does. Raises OSError."""
    segments, files = segments_of(directory), OpenFiles()
    for first, limit in zip(segments, [*segments, None][1:], strict=True):
        segment = Segment(directory, first, files)
        try:
            segment.make()
            segment.recover(limit)
        finally:
            segment.close()
    for index in orphans_of(directory, segments):
        index.unlink()


def orphans_of(directory: Path, firsts: Iterable[int]) -> list[Path]:
    """Return the indexes that have no segment."""
    known = set(firsts)
    return [path for first, path in index_paths(directory).items() if first not in known and is_plain(path)]


def strange_files(directory: Path) -> list[Path]:
    """Return the entries of a topic's folder that are not regular files. A broker would not open them."""
    return sorted(path for path in directory.iterdir() if not is_plain(path))


def is_plain(path: Path) -> bool:
    """Return whether `path` is a regular file or does not exist."""
    try:
        refuse_other_kinds(path)
    except OSError:
        return False
    return True


def _check(path: Path, limit: int | None) -> SegmentCheck:
    first = int(path.stem)
    with _opened(path) as file, mapped(file, end_of_data(file)) as data:
        known = _read_index(index_path(path), len(data))
        scan = Scan(data, known, first, limit)
        found = SegmentCheck(path, first, scan.next, scan.size, list(_damaged(data, scan, first)))
        found.missing = max(0, limit - scan.next) if limit is not None else 0
        found.excess = os.fstat(file).st_size - scan.size
    if found.excess:
        found.mendable.append(f"{found.excess} bytes after the last event")
    if known != bytes(scan.entries) + (seal_of(scan.entries) if limit is not None else b""):
        found.mendable.append("the index does not match the segment" if known else "the index is missing")
    return found


def _damaged(data: "bytes | mmap.mmap", scan: Scan, first: int) -> Iterator[int]:
    start, offset = 0, first
    for at in range(0, len(scan.entries), _RUN):
        for entry in decode_entries(bytes(scan.entries[at : at + _RUN])):
            if crc32c(data[start : entry.end]) != entry.crc:
                yield offset
            start, offset = entry.end, offset + 1


def _read_index(path: Path, size: int) -> bytes:
    if not path.exists():
        return b""
    with _opened(path) as file:
        return read_index(file, size)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield file
    finally:
        os.close(file)
