"""The folder that one broker owns: its lock, the log of each topic, the state, and room kept for when the disk is full."""

import fcntl
import os
from pathlib import Path
from typing import Final, Literal, NamedTuple

import structlog

from broker.errors import StartError
from broker.files import sync_directory
from broker.log import Batch, CommitLog, MemoryLog, Reserve, TopicLog

__all__ = ["DataDirectory", "Durability", "Sizes"]

Durability = Literal["synced", "written", "memory"]

logger = structlog.stdlib.get_logger()

RESERVE_NAME: Final = "RESERVE"


class Sizes(NamedTuple):
    """Where segments end, and how much room is kept for acks when the disk is full (bytes)."""

    segment: int = 64 << 20
    reserve: int = 16 << 20


class DataDirectory:
    """The folder that one broker owns, with the log of each topic."""

    def __init__(self, path: Path, durability: Durability, sizes: Sizes) -> None:
        self.path = path
        self.durability = durability
        self.sizes = sizes
        self.reserve = Reserve(path / RESERVE_NAME, 0 if durability == "memory" else sizes.reserve)
        self._lock = -1

    def acquire(self) -> None:
        """Make the folder and lock it. Raises StartError where another broker has it or it cannot be written."""
        try:
            is_new = not (self.path / "topics").exists()
            (self.path / "topics").mkdir(parents=True, exist_ok=True)
            if is_new:
                sync_directory(self.path)
                sync_directory(self.path.parent)
            self._lock = lock_directory(self.path)
        except OSError as error:
            raise StartError(
                f"cannot use {self.path} for the log: {error.strerror}; choose another: --data-dir"
            ) from error

    def release(self) -> None:
        """Let another broker have the folder."""
        os.close(self._lock)

    def topics(self) -> list[str]:
        """Return the topics that have a log."""
        return sorted(path.name for path in (self.path / "topics").iterdir() if path.is_dir())

    def open(self, topic: str) -> TopicLog:
        """Open a topic's log, made where it is missing, and say what had to be mended."""
        if self.durability == "memory":
            return MemoryLog()
        log = CommitLog(
            self.path / "topics" / topic, segment_bytes=self.sizes.segment, is_synced=self.durability == "synced"
        )
        if any(log.recovery):
            logger.warning("mended a log", topic=topic, **log.recovery._asdict())
        return log

    def append(self, log: TopicLog, batch: Batch) -> None:
        """Write a batch, unless the room that is kept for acks would have to be spent on it. Raises OSError."""
        if not self.reserve.is_held:
            self.reserve.take()
        log.append(batch)


def lock_directory(path: Path) -> int:
    """Lock a data directory; closing the file that is returned unlocks it. Raises StartError where it is in use, OSError."""
    lock = os.open(path / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise StartError(f"another broker uses {path}; stop it or choose another folder: --data-dir") from None
    return lock
