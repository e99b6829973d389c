"""The open files of segments, limited in number.

The two files of a segment are opened on first use. They stay open until `most` other segments were used more recently, so
that a busy segment is not opened for each batch. Always true:

- at most `most` pairs of files are open, plus those in use at this moment;
- files in use are never closed;
- a removed file is not opened again;
- a path that was dropped may name another file later, so files that were opened before that are not kept for it.
"""

import os
import weakref
from collections import OrderedDict
from errno import EMFILE, ENFILE
from threading import Lock
from typing import Final, Self

from tweetwire.files import FILE_MODE

__all__ = ["OpenFiles", "OpenSegment"]

MOST: Final = 64
_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class OpenSegment:
    """The descriptors of a segment's lines and of its index. Use it in a ``with`` block; after it, they may be closed."""

    __slots__ = ("_owner", "file", "index", "is_dropped", "users")

    def __init__(self, owner: "OpenFiles", file: int, index: int) -> None:
        self._owner = owner
        self.file = file
        self.index = index
        self.users = 1
        self.is_dropped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._owner.give_back(self)

    def close(self) -> None:
        """Close both files."""
        os.close(self.file)
        os.close(self.index)


class OpenFiles:
    """The open files of up to `most` segments. The least recently used are closed first. Safe to use from any thread."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._held: OrderedDict[str, OpenSegment] = OrderedDict()
        self._lock = Lock()
        # How often `drop` was called
        self._drops = 0
        weakref.finalize(self, _close_all, self._held)

    def __len__(self) -> int:
        return len(self._held)

    def take(self, path: str, index_path: str, *, is_made: bool = False) -> OpenSegment:
        """Return a segment's open files, opening them if needed. With `is_made`, create the missing ones.

        Raises OSError, and FileNotFoundError if a file is missing and `is_made` is not set.
        """
        with self._lock:
            held = self._held.get(path)
            if held is not None:
                self._held.move_to_end(path)
                held.users += 1
                return held
            drops = self._drops
        # Open without the lock, since a disk may be slow.
        return self._hold(path, self._open(path, index_path, os.O_CREAT if is_made else 0), drops)

    def give_back(self, held: OpenSegment) -> None:
        """Release the files after use, and close them if they were dropped meanwhile."""
        with self._lock:
            held.users -= 1
            if held.is_dropped and not held.users:
                held.close()

    def drop(self, path: str) -> None:
        """Close a segment's files, or let the last user close them if they are in use."""
        with self._lock:
            self._drops += 1
            if path in self._held:
                self._drop(path)

    def _hold(self, path: str, opened: OpenSegment, drops: int) -> OpenSegment:
        with self._lock:
            held = self._held.get(path)
            if held is not None:
                # Another thread has opened the same files meanwhile.
                opened.close()
                held.users += 1
                return held
            if drops != self._drops:
                # The path may belong to another file by now. The last user closes this file.
                opened.is_dropped = True
                return opened
            self._held[path] = opened
            while len(self._held) > self.most:
                self._drop(next(iter(self._held)))
            return opened

    def _drop(self, path: str) -> None:
        held = self._held.pop(path)
        held.is_dropped = True
        if not held.users:
            held.close()

    def _open(self, path: str, index_path: str, flags: int) -> OpenSegment:
        try:
            return self._open_both(path, index_path, flags)
        except OSError as error:
            if error.errno not in {EMFILE, ENFILE}:
                raise
        self._drop_idle()
        return self._open_both(path, index_path, flags)

    def _open_both(self, path: str, index_path: str, flags: int) -> OpenSegment:
        file = os.open(path, _FLAGS | flags, FILE_MODE)
        try:
            return OpenSegment(self, file, os.open(index_path, _FLAGS | flags, FILE_MODE))
        except OSError:
            os.close(file)
            raise

    def _drop_idle(self) -> None:
        """Close all files that are not in use, because the process has no free descriptors."""
        with self._lock:
            for path in [path for path, held in self._held.items() if not held.users]:
                self._drop(path)


def _close_all(held: "OrderedDict[str, OpenSegment]") -> None:
    while held:
        held.popitem()[1].close()
