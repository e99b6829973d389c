"""File locks, which one program at a time can hold."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tweetwire.protocol.errors import StartError

__all__ = ["locked"]

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


@contextmanager
def locked(path: Path, taken: str) -> Iterator[None]:
    """Hold the lock file `path`, if its file system has locks. Raises StartError with the text `taken`, and OSError."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _lock(file, taken)
        yield
    finally:
        os.close(file)


def _lock(file: int, taken: str) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StartError(taken) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
