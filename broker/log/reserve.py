"""Disk space that is reserved for the records that must be written even if the disk is full, such as acks."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final, ParamSpec, TypeVar

from tweetwire.files import FILE_MODE, write_all

__all__ = ["NO_ROOM", "Reserve"]

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

P = ParamSpec("P")
T = TypeVar("T")


class Reserve:
    """A file of `size` bytes that is removed when the disk is full, to make room for writes that must not fail.

    Writes that can be refused, such as events, first take the reserve back. They are refused while there is no room for it.
    With a `size` of 0 there is no reserve.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self.is_held = size == 0
        self._taking = Lock()

    def take(self) -> None:
        """Create the file if it is missing. Raises OSError if there is no room for it."""
        with self._taking:
            if self.is_held:
                return
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
            try:
                _fill(file, self.size)
            except OSError:
                self.path.unlink(missing_ok=True)
                raise
            finally:
                os.close(file)
            self.is_held = True

    def give_back(self) -> bool:
        """Remove the file. Returns whether its space was freed."""
        with self._taking:
            if self.size == 0 or not self.path.exists():
                return False
            self.is_held = False
            with suppress(OSError):
                self.path.unlink()
                return True
            return False

    def spend(self, write: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `write`. If the disk is full, give the reserve back and call it once more. Raises OSError."""
        try:
            return write(*args, **kwargs)
        except OSError as error:
            if error.errno not in NO_ROOM or not self.give_back():
                raise
        return write(*args, **kwargs)


def _fill(file: int, size: int) -> None:
    """Reserve `size` bytes of the disk for an open file. Raises OSError if there is no room."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
        return
    # macOS has no such call, so the bytes are written.
    piece = bytes(1 << 20)
    for begin in range(0, size, len(piece)):
        write_all(file, piece[: size - begin])
