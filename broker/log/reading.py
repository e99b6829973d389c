"""Read a segment's two files as a whole, with bounded memory even if a damaged file is very long."""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from broker.log.index import ENTRY_BYTES, SEAL_BYTES

__all__ = ["mapped", "read_index"]

LINE_BYTES_MIN: Final = 16


@contextmanager
def mapped(file: int, size: int) -> "Iterator[bytes | mmap.mmap]":
    """Map a file's first `size` bytes into memory. An empty file cannot be mapped, so it yields empty bytes."""
    if size == 0:
        yield b""
        return
    with mmap.mmap(file, size, access=mmap.ACCESS_READ) as data:
        yield data


def read_index(index: int, size: int) -> bytes:
    """Return the bytes of an index, at most as many as the entries of a segment of `size` bytes can need."""
    most = (size // LINE_BYTES_MIN + 1) * ENTRY_BYTES + SEAL_BYTES
    return os.pread(index, min(os.fstat(index).st_size, most), 0)
