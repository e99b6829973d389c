"""The names of a segment's two files: its first offset in 20 digits, with `.jsonl` for the lines, `.index` for the index."""

from pathlib import Path
from typing import Final

__all__ = ["index_path", "index_paths", "segment_path", "segment_paths"]

_DIGITS: Final = 20


def segment_path(directory: Path, first: int) -> Path:
    """Return the path of the segment with this first offset."""
    return directory / f"{first:0{_DIGITS}d}.jsonl"


def index_path(segment: Path) -> Path:
    """Return the path of a segment's index."""
    return segment.with_suffix(".index")


def segment_paths(directory: Path) -> dict[int, Path]:
    """Return the segments in a topic's folder by first offset, in order."""
    named = (path for path in directory.glob("*.jsonl") if len(path.stem) == _DIGITS and path.stem.isdecimal())
    return {int(path.stem): path for path in sorted(named)}


def index_paths(directory: Path) -> dict[int, Path]:
    """Return the indexes in a topic's folder by the first offset of their segment."""
    return {int(path.stem): path for path in directory.glob("*.index") if path.stem.isdecimal()}
