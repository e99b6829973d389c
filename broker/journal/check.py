"""Check and mend the journal and snapshot files of a broker that is stopped."""

import os
from pathlib import Path

from broker.journal.lines import parse_line
from broker.journal.snapshot import read_snapshot
from tweetwire.files import read_file

__all__ = ["cut_torn_end", "damaged_lines", "is_whole_snapshot"]


def is_whole_snapshot(path: Path) -> bool:
    """Return whether a snapshot is complete and undamaged."""
    return read_snapshot(path).is_whole


def damaged_lines(path: Path) -> tuple[int, int, bool]:
    """Return the number of records in a journal or snapshot, the number of damaged lines, and whether its end is torn."""
    *lines, rest = read_file(path).split(b"\n")
    good = sum(parse_line(line) is not None for line in lines)
    return good, len(lines) - good, bool(rest)


def cut_torn_end(path: Path) -> None:
    """Cut the last record of a journal if it is incomplete. Raises OSError."""
    os.truncate(path, read_file(path).rfind(b"\n") + 1)
