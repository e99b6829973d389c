"""Read and write files so that they survive a power cut and only their owner can read them."""

import fcntl
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EMFILE, ENFILE
from pathlib import Path
from typing import Final

__all__ = [
    "FILE_MODE",
    "FOLDER_MODE",
    "end_of_data",
    "make_folder",
    "put_in_place",
    "read_file",
    "refuse_other_kinds",
    "replace_file",
    "replacing_file",
    "sync_data",
    "sync_directory",
    "why",
    "write_all",
]

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
"""The mode of stored files: only the user that runs the program may read them."""
HOLES_MAX: Final = 64 << 20
"""The most bytes of holes in a file. A power cut leaves smaller holes; data after larger ones is not from a broker."""


def sync_data(file: int) -> None:
    """Wait until the disk has the data and the size of a file. Raises OSError.

    macOS has no fdatasync, and its fsync returns while the data is still in the disk's cache.
    """
    if sys.platform == "darwin":
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(file)


def sync_directory(directory: Path) -> None:
    """Wait until the names in a folder are on the disk. Raises OSError.

    Until then, a power cut may undo the creation or the renaming of a file.
    """
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(directory: Path) -> bool:
    """Make a folder that only its owner may open, and wait until its name is on the disk.

    Returns whether the folder was missing. Missing parents are made with the usual mode. If this raises OSError, the
    folder does not exist.
    """
    if directory.exists():
        return False
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=FOLDER_MODE, exist_ok=True)
    try:
        sync_directory(directory.parent)
    except OSError:
        directory.rmdir()
        raise
    return True


def refuse_other_kinds(path: Path, *, is_folder: bool = False) -> None:
    """Raise OSError if `path` exists and is not a regular file, or with `is_folder`, not a folder.

    Through a symbolic link the broker would write elsewhere, and opening a FIFO may block forever.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISDIR(mode) if is_folder else stat.S_ISREG(mode)):
        kind = "a symbolic link" if stat.S_ISLNK(mode) else f"no {'folder' if is_folder else 'regular file'}"
        raise OSError(None, f"{path} is {kind}; move it away", str(path))


def end_of_data(file: int) -> int:
    """Return the size of a file.

    If its holes exceed `HOLES_MAX` bytes, return the offset of the hole that exceeds the limit.

    A hole takes no space on the disk and reads as NUL bytes. Without this limit, a small file with large holes could fill
    the memory of its reader.
    """
    size = os.fstat(file).st_size
    at = holes = 0
    while at < size:
        hole = os.lseek(file, at, os.SEEK_HOLE)
        if hole >= size:
            return size
        try:
            at = os.lseek(file, hole, os.SEEK_DATA)
        except OSError:
            # No data follows the hole.
            at = size
        holes += at - hole
        if holes > HOLES_MAX:
            return hole
    return size


def read_file(path: Path) -> bytes:
    """Return the content of a regular file up to `end_of_data`.

    Raises OSError for any other kind of file, without blocking.
    """
    refuse_other_kinds(path)
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        data = bytearray()
        end = end_of_data(file)
        while len(data) < end and (more := os.pread(file, end - len(data), len(data))):
            data += more
        return bytes(data)
    finally:
        os.close(file)


def write_all(file: int, data: bytes) -> None:
    """Write all of `data` to an open file. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


@contextmanager
def replacing_file(path: Path, *, mode: int = 0o666, kept_as: Path | None = None) -> Iterator[int]:
    """Yield an open file that replaces `path` in one step when the block ends.

    A reader sees the old content or the new content, also after a power cut. If the block raises, `path` stays as it was.
    The new file is then removed, because on a full disk half a file takes space that other files need. Two processes must
    not replace the same file at the same time. With `kept_as`, the old file is renamed to that path. A power cut between
    the two renames leaves no file at `path`. Raises OSError.
    """
    new = path.with_name(f"{path.name}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(new, flags, mode)
    try:
        yield file
        put_in_place(file, new, path, kept_as=kept_as)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)


def replace_file(path: Path, data: bytes, *, mode: int = 0o666, kept_as: Path | None = None) -> None:
    """Replace the content of `path` by `data` in one step, as `replacing_file` does. Raises OSError."""
    with replacing_file(path, mode=mode, kept_as=kept_as) as file:
        write_all(file, data)


def put_in_place(file: int, new: Path, path: Path, *, kept_as: Path | None = None) -> None:
    """Sync the open file `file`, which is at `new`, and rename it to `path`. Raises OSError."""
    os.fsync(file)
    if kept_as is not None and path.exists():
        path.rename(kept_as)
    new.rename(path)
    sync_directory(path.parent)


def why(error: OSError) -> str:
    """Return in words why a file cannot be used."""
    if error.errno in {EMFILE, ENFILE}:
        return "no file descriptors are left; raise the limit (ulimit -n, LimitNOFILE) or close connections"
    return error.strerror or str(error)
