"""How often each hashtag is in the stored tweets, and the file that says so.

The counts start from what MongoDB holds and grow by the tweets that are new, so they are right after any restart, however
it came about; the file is only their picture.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["HashtagCounts"]


class HashtagCounts:
    """Counts of hashtags as they are written, and their file: the most frequent first, ties in the alphabet's order."""

    def __init__(self, path: Path | None, counts: Mapping[str, int]) -> None:
        self._path = path
        self._counts = Counter(counts)
        self._changes = 1
        self._written = 0

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, hashtags: Iterable[str]) -> None:
        """Count the hashtags of a new tweet."""
        self._counts.update(hashtags)
        self._changes += 1

    def top(self, most: int | None = None) -> list[tuple[str, int]]:
        """Return hashtags and counts in order."""
        ordered = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        return ordered[:most]

    def write(self) -> None:
        """Replace the file, so that a reader sees the old one or the new one. Raises OSError."""
        if self._path is None or self._written == self._changes:
            return
        changes = self._changes
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            fresh.write_text(json.dumps(dict(self.top()), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
            fresh.replace(self._path)
            self._written = changes
        finally:
            fresh.unlink(missing_ok=True)
