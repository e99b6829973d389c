"""The id of a topic's log, in the file ``ID`` of its folder.

Another system that counts offsets keeps the id with them. So it notices that a topic was dropped and made again, even if the
new log is longer than the old one. A log that an earlier release made gets its id when it is opened.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from tweetwire.checked_files import DamagedFile, encode_checked, read_checked
from tweetwire.files import FILE_MODE, refuse_other_kinds, sync_data, write_all

__all__ = ["ID_NAME", "keep_log_id", "new_log_id"]

ID_NAME: Final = "ID"
_BYTES: Final = 8


class _LogId(Struct):
    id: str


def new_log_id() -> str:
    """Return a new id: 16 hexadecimal digits."""
    return secrets.token_hex(_BYTES)


def keep_log_id(folder: Path, *, is_new: bool, is_synced: bool) -> tuple[str, bool]:
    """Return the id of a log, and whether it replaces one that was damaged. Make an id if there is none.

    The name of the file is on the disk once the caller has synced the folder. Raises OSError for a new log that gets no id, and
    for a file of another kind. An older log without room for an id has the id "".
    """
    path = folder / ID_NAME
    refuse_other_kinds(path)
    found, is_damaged = _read(path)
    if found:
        return found, False
    made = new_log_id()
    try:
        _write(path, made, is_synced=is_synced)
    except OSError:
        if is_new:
            raise
        with suppress(OSError):
            path.unlink()
        return "", is_damaged
    return made, is_damaged


def _read(path: Path) -> tuple[str, bool]:
    """Return the id in a file, "" without one, and whether the file is damaged."""
    try:
        found = read_checked(path, _LogId)
    except DamagedFile:
        return "", True
    return "" if found is None else found.id, False


def _write(path: Path, id_: str, *, is_synced: bool) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    try:
        write_all(file, encode_checked(_LogId(id_)))
        if is_synced:
            sync_data(file)
    finally:
        os.close(file)
