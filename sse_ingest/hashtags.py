"""Count the hashtags of the stored tweets, and write the counts to a file.

The counts begin with the tweets in MongoDB and grow with each new tweet, so they are also right after a crash. The
file is only a copy of them. Counting many millions of stored tweets takes a while, so new tweets are ingested meanwhile.
Until it is done, the counts cover new tweets only, and the file is not changed.
"""

import errno
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryFile

import msgspec

from tweetwire.files import replace_file
from tweetwire.runtime.output import naming_flag

__all__ = ["HashtagCounts"]


class HashtagCounts:
    """The counts of hashtags in their original spelling, and the file in which they are stored.

    The file lists the most frequent hashtag first, and equal counts alphabetically. `is_whole` says whether the counts
    include the tweets stored before the start.
    """

    def __init__(self, path: Path) -> None:
        self.is_whole = False
        self._path = path
        self._counts: Counter[str] = Counter()
        self._changes = 0
        self._written = -1

    def __len__(self) -> int:
        return len(self._counts)

    def add_hashtags(self, hashtags: Iterable[str]) -> None:
        """Count the hashtags of a new tweet."""
        self._counts.update(hashtags)
        self._changes += 1

    def add_stored(self, counts: Mapping[str, int]) -> None:
        """Add the counts of the tweets that were stored before the start."""
        self._counts.update(counts)
        self._changes += 1
        self.is_whole = True

    def top(self, most: int | None = None) -> list[tuple[str, int]]:
        """Return the `most` frequent hashtags, or all, with their counts, in the order of the file."""
        # May run in another thread. Copying a dictionary is atomic; iterating over it fails if it grows meanwhile.
        ordered = sorted(dict(self._counts).items(), key=itemgetter(0))
        ordered.sort(key=itemgetter(1), reverse=True)
        return ordered[:most]

    def write(self) -> None:
        """Replace the file, so that a reader sees either the old or the new content. Raises OSError."""
        if not self.is_whole or self._written == self._changes:
            return
        changes = self._changes
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, msgspec.json.format(msgspec.json.encode(dict(self.top())), indent=1) + b"\n")
        self._written = changes

    def check(self) -> None:
        """Raise StartError if the file cannot be written."""
        with naming_flag(self._path, "--hashtags-file"):
            if self._path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=self._path.parent):
                pass
