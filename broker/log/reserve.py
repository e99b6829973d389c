"""Room on the disk that is kept for what must still be written when it is full: acks, cursors, the steps of deliveries."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final, ParamSpec, TypeVar

__all__ = ["NO_ROOM", "Reserve"]

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

P = ParamSpec("P")
T = TypeVar("T")


class Reserve:
    """A file of `size` bytes that is given up when the disk is full.

    Whoever can be refused takes it back before writing, so that the room goes to those who cannot. With a `size` of 0
    there is nothing to give.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self.is_held = size == 0
        self._taking = Lock()

    def take(self) -> None:
        """Have the file, made where it is missing. Raises OSError where there is no room for it."""
        with self._taking:
            if self.is_held:
                return
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.posix_fallocate(file, 0, self.size)
            except OSError:
                self.path.unlink(missing_ok=True)
                raise
            finally:
                os.close(file)
            self.is_held = True

    def give_back(self) -> bool:
        """Remove the file; returns whether there was one."""
        with self._taking:
            if self.size == 0 or not self.path.exists():
                return False
            self.is_held = False
            with suppress(OSError):
                self.path.unlink()
                return True
            return False

    def spend(self, write: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Write something that must not be refused: where there is no room, once more without the reserve. Raises OSError."""
        try:
            return write(*args, **kwargs)
        except OSError as error:
            if error.errno not in NO_ROOM or not self.give_back():
                raise
        return write(*args, **kwargs)
