"""The folder that one broker owns: its lock, the log of each topic, the state, and the reserve for a full disk."""

import fcntl
import os
import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final, Literal, NamedTuple

import structlog

from broker.identity import find_identity, make_identity, new_identity
from broker.log import Batch, CommitLog, MemoryLog, OpenFiles, Reserve, TopicLog
from tweetwire.files import FILE_MODE, make_folder, refuse_other_kinds, sync_directory, why
from tweetwire.protocol.errors import StartError

__all__ = [
    "DROPPED_NAME",
    "RESTORING",
    "DataDirectory",
    "Durability",
    "Sizes",
    "connections_room",
    "lock_directory",
    "locked_for_restore",
    "open_files_max",
    "restoring",
]

Durability = Literal["synced", "written", "memory"]

logger = structlog.stdlib.get_logger()

RESERVE_NAME: Final = "RESERVE"
RESTORING: Final = "restoring"
"""The folder in a data directory to which ``tweetwire restore`` writes, until all is on the disk."""
_OF_NO_BROKER: Final = frozenset({"LOCK", "lost+found"})
"""Names that an empty data directory may have: the lock, and the folder of a file system."""
_RESTORED: Final = frozenset({"topics", "state", "tiers"})
"""The folders that a restore moves out of `RESTORING` at its end."""
DROPPED_NAME: Final = "dropped"
"""The folder of the logs of dropped topics, until they are deleted."""
OPEN_SEGMENTS_MAX: Final = 1024
OPEN_SEGMENTS_MIN: Final = 8
OTHER_FILES: Final = 32
"""How many descriptors are needed for other files: listeners, the state, the event loop, folders that are synced."""


class Sizes(NamedTuple):
    """The size at which a segment ends, and the size of the reserve for acks on a full disk, in bytes."""

    segment: int = 64 << 20
    reserve: int = 16 << 20


class DataDirectory:
    """The folder that one broker owns, with the log of each topic."""

    def __init__(self, path: Path, durability: Durability, sizes: Sizes) -> None:
        self.path = path
        self.durability = durability
        self.sizes = sizes
        self.reserve = Reserve(path / RESERVE_NAME, 0 if durability == "memory" else sizes.reserve)
        self.files = OpenFiles(_open_segments_max())
        self._dropped = path / DROPPED_NAME
        self._lock = -1

    def acquire(self) -> None:
        """Create the folder and lock it. Raises StartError if another broker uses it or it is not writable."""
        try:
            make_folder(self.path)
            self._lock = lock_directory(self.path)
            if (self.path / RESTORING).exists():
                self.release()
                raise StartError(f"the restore to {self.path} was interrupted; run tweetwire restore again")
            make_folder(self.path / "topics")
        except OSError as error:
            raise StartError(
                f"cannot use the data directory {self.path}: {why(error)}; choose another with --data-dir"
            ) from error

    def release(self) -> None:
        """Unlock the folder, so that another broker can use it."""
        os.close(self._lock)

    def identity(self) -> str:
        """Return the identity of the folder, making one if it has none. Raises OSError, StartError.

        Events in memory end with the process, so each process then has a new identity.
        """
        if self.durability == "memory":
            return new_identity()
        return find_identity(self.path) or make_identity(self.path)

    def topics(self) -> list[str]:
        """Return the topics that have a log. Raises OSError for a symbolic link, which could lead out of the folder."""
        found = sorted((self.path / "topics").iterdir())
        for path in found:
            if path.is_symlink():
                refuse_other_kinds(path, is_folder=True)
        return [path.name for path in found if path.is_dir()]

    def open(self, topic: str) -> TopicLog:
        """Open a topic's log, creating it if it is missing. Logs a warning if the log had to be mended."""
        if self.durability == "memory":
            return MemoryLog()
        log = CommitLog(
            self.path / "topics" / topic,
            segment_bytes=self.sizes.segment,
            is_synced=self.durability == "synced",
            files=self.files,
            now_ms=time.time_ns() // 1_000_000,
        )
        if any(log.recovery):
            logger.warning("mended a log", topic=topic, **log.recovery._asdict())
        return log

    def drop(self, topic: str, log: TopicLog) -> None:
        """Move a topic out of the folder by one rename, which is durable when this returns. Raises OSError."""
        if self.durability != "memory":
            refuse_other_kinds(self._dropped, is_folder=True)
            make_folder(self._dropped)
            places = (self._dropped / f"{topic}.{number}" for number in count())
            log.set_aside(next(place for place in places if not place.exists()))
        log.close()

    def delete_dropped(self) -> None:
        """Delete the logs of dropped topics. Raises OSError."""
        if self._dropped.is_dir() and not self._dropped.is_symlink():
            for path in self._dropped.iterdir():
                shutil.rmtree(path)

    def append(self, log: TopicLog, batch: Batch) -> None:
        """Write a batch. If the reserve for acks was given up, take it back first. Raises OSError if there is no room."""
        if not self.reserve.is_held:
            self.reserve.take()
        log.append(batch)


def lock_directory(path: Path) -> int:
    """Lock a data directory and return the lock's file. Closing the file unlocks it.

    Raises StartError if a broker uses the directory, and OSError.
    """
    refuse_other_kinds(path / "LOCK")
    lock = os.open(path / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise StartError(f"another broker uses {path}; stop it or choose another folder with --data-dir") from None
    return lock


@contextmanager
def locked_for_restore(path: Path) -> Iterator[None]:
    """Make a data directory that is missing, and lock it until the end of the block.

    Raises StartError if it is neither empty nor has an interrupted restore, and OSError.
    """
    make_folder(path)
    _refuse_used(path)
    lock = lock_directory(path)
    try:
        yield
    finally:
        os.close(lock)


def _refuse_used(path: Path) -> None:
    """Raise StartError if a data directory is neither empty nor has an interrupted restore. Raises OSError."""
    found = {entry.name for entry in path.iterdir()} - _OF_NO_BROKER
    if found - (_RESTORED | {RESTORING} if RESTORING in found else set()):
        raise StartError(f"{path} is not empty; choose a new folder with --data-dir")


@contextmanager
def restoring(path: Path) -> Iterator[Path]:
    """Yield the new folder `RESTORING` in a data directory, within `locked_for_restore`.

    At the end of the block, the folders in it are moved to the directory. If anything fails, the directory is empty again.
    A broker refuses a directory with `RESTORING`, so it never sees logs without their state. Raises OSError.
    """
    new = path / RESTORING
    # All of this is of a restore that was interrupted.
    _remove_restored(path)
    make_folder(new)
    try:
        yield new
        for name in sorted(_RESTORED):
            if (new / name).exists():
                (new / name).rename(path / name)
        sync_directory(path)
    except BaseException:
        with suppress(OSError):
            _remove_restored(path)
        raise
    shutil.rmtree(new, ignore_errors=True)
    sync_directory(path)


def _remove_restored(path: Path) -> None:
    """Remove the folders of a restore, `RESTORING` last. Raises OSError."""
    for name in (*sorted(_RESTORED), RESTORING):
        if (path / name).exists():
            shutil.rmtree(path / name)


def open_files_max() -> int:
    """Return how many files, including sockets, this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def _open_segments_max() -> int:
    """Return how many segments may stay open, for all topics.

    A segment has two files. They use at most a quarter of the process's limit of open files.
    """
    return max(OPEN_SEGMENTS_MIN, min(OPEN_SEGMENTS_MAX, open_files_max() // 8))


def connections_room() -> int:
    """Return how many connections may be open, so that enough descriptors are left for the files."""
    return max(1, open_files_max() - 2 * _open_segments_max() - OTHER_FILES)
