"""How often each hashtag is in the stored tweets, and the file that says so.

The counts start from what MongoDB holds and grow by the tweets that are new, so they are right after any restart, however
it came about; the file is only their picture. What MongoDB holds is counted while tweets are ingested already, since with
many millions it takes a while; until then the counts are of what is new, and the file stays as it was.
"""

import errno
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path

import msgspec

from broker.errors import StartError

__all__ = ["HashtagCounts"]


class HashtagCounts:
    """Counts of hashtags as they are written, and their file: the most frequent first, ties in the alphabet's order.

    `is_whole` says whether the tweets of earlier times are among them.
    """

    def __init__(self, path: Path) -> None:
        self.is_whole = False
        self._path = path
        self._counts: Counter[str] = Counter()
        self._changes = 0
        self._written = -1

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, hashtags: Iterable[str]) -> None:
        """Count the hashtags of a new tweet."""
        self._counts.update(hashtags)
        self._changes += 1

    def add_stored(self, counts: Mapping[str, int]) -> None:
        """Add the hashtags of the tweets of earlier times."""
        self._counts.update(counts)
        self._changes += 1
        self.is_whole = True

    def top(self, most: int | None = None) -> list[tuple[str, int]]:
        """Return hashtags and counts in order."""
        # Also from another thread: a dictionary is copied at once, while it cannot be gone over as it grows.
        ordered = sorted(dict(self._counts).items(), key=itemgetter(0))
        ordered.sort(key=itemgetter(1), reverse=True)
        return ordered[:most]

    def write(self) -> None:
        """Replace the file, so that a reader sees the old one or the new one. Raises OSError."""
        if not self.is_whole or self._written == self._changes:
            return
        changes = self._changes
        fresh = self._fresh()
        try:
            fresh.write_bytes(msgspec.json.format(msgspec.json.encode(dict(self.top())), indent=1) + b"\n")
            fresh.replace(self._path)
            self._written = changes
        finally:
            fresh.unlink(missing_ok=True)

    def check(self) -> None:
        """Raise StartError where the file cannot be written."""
        try:
            if self._path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            fresh = self._fresh()
            fresh.touch()
            fresh.unlink()
        except OSError as error:
            raise StartError(f"cannot write {self._path}: {error.strerror}; choose another: --hashtags-file") from error

    def _fresh(self) -> Path:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return self._path.with_name(f".{self._path.name}.{os.getpid()}")
