"""A client's disk: messages that it has not got rid of yet, and events that it has taken and not finished.

One file a client, of JSON lines behind their crc32c, each the newest state of one message. Always true: replaying the
lines, of which the last one may be torn, gives the states; a file that has grown is written anew beside the old one and
takes its place in one step. Another process with the same client's name is refused.
"""

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

import anyio
import msgspec
from anyio import to_thread
from crc32c import crc32c
from msgspec import Struct

from broker.errors import SpoolTaken, SpoolUnusable
from broker.files import sync_directory
from broker.protocol.handshakes import State

__all__ = ["Incoming", "Outgoing", "Spool"]

COMPACT_BYTES: Final = 4 << 20
_CRC_DIGITS: Final = 8


class Outgoing(Struct, tag="outgoing"):
    """A message that is published; `event` is its JSON."""

    topic: str
    id: str
    event: str
    state: State

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from others."""
        return self.topic, self.id


class Incoming(Struct, tag="incoming"):
    """An event that was delivered; `line` is the stored event's JSON."""

    topic: str
    name: str
    offset: int
    line: str
    state: State

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells it from others."""
        return self.topic, self.name, self.offset


_Entry: TypeAlias = Outgoing | Incoming
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Entry).decode


class Spool:
    """The file of client `name` in `directory`. Raises SpoolTaken, SpoolUnusable."""

    def __init__(self, directory: Path, name: str) -> None:
        self.path = directory / f"{name}.spool"
        self.outgoing: dict[tuple[str, str], Outgoing] = {}
        self.incoming: dict[tuple[str, str, int], Incoming] = {}
        self._put = self._synced = 0
        self._syncing = anyio.Lock()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(directory / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SpoolUnusable(self.path, error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._replay()
            self._file = self._written_anew()
        except BlockingIOError:
            os.close(self._lock)
            raise SpoolTaken(self.path) from None
        except OSError as error:
            os.close(self._lock)
            raise SpoolUnusable(self.path, error) from error

    def put(self, entries: Iterable[_Entry]) -> None:
        """Write the new states of messages; one that is done is forgotten. Raises SpoolUnusable, having changed nothing."""
        entries = list(entries)
        data = b"".join(map(_line, entries))
        try:
            _write_all(self._file, data)
        except OSError as error:
            # Half a line would spoil the next one.
            os.ftruncate(self._file, self._bytes)
            raise SpoolUnusable(self.path, error) from error
        for entry in entries:
            self._note(entry)
        self._bytes += len(data)
        self._put += 1

    async def sync(self) -> None:
        """Wait until the disk has what was put; those who wait at once share one sync. Raises SpoolUnusable."""
        wanted = self._put
        async with self._syncing:
            if self._synced < wanted:
                number = self._put
                try:
                    await to_thread.run_sync(os.fdatasync, self._file)
                    self._compact()
                except OSError as error:
                    raise SpoolUnusable(self.path, error) from error
                self._synced = number

    def sync_now(self) -> None:
        """Have the disk hold what was put, at once, for who has no event loop. Raises SpoolUnusable."""
        if self._synced < self._put:
            try:
                os.fdatasync(self._file)
                self._compact()
            except OSError as error:
                raise SpoolUnusable(self.path, error) from error
            self._synced = self._put

    def close(self) -> None:
        """Close the files; what is not done goes on when they are opened again."""
        os.close(self._file)
        os.close(self._lock)

    def _note(self, entry: _Entry) -> None:
        if isinstance(entry, Outgoing):
            if entry.state is State.CONFIRMED:
                self.outgoing.pop(entry.key, None)
            else:
                self.outgoing[entry.key] = entry
        elif entry.state is State.CONFIRMED:
            self.incoming.pop(entry.key, None)
        else:
            self.incoming[entry.key] = entry

    def _replay(self) -> None:
        if self.path.exists():
            for line in self.path.read_bytes().splitlines():
                entry = _parse(line)
                if entry is not None:
                    self._note(entry)

    def _compact(self) -> None:
        if self._bytes > COMPACT_BYTES and self._bytes > 4 * self._live:
            before = self._file
            self._file = self._written_anew()
            os.close(before)

    def _written_anew(self) -> int:
        """Write the states alone, and return the open file, which has taken the place of the one before."""
        new = self.path.with_suffix(".new")
        entries: list[_Entry] = [*self.outgoing.values(), *self.incoming.values()]
        data = b"".join(map(_line, entries))
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            _write_all(file, data)
            os.fsync(file)
            new.rename(self.path)
            sync_directory(self.path.parent)
        except OSError:
            os.close(file)
            raise
        self._bytes = self._live = len(data)
        return file


def _line(entry: _Entry) -> bytes:
    body = _encode(entry)
    return b"%08x %b\n" % (crc32c(body), body)


def _parse(line: bytes) -> _Entry | None:
    crc, body = line[:_CRC_DIGITS], line[_CRC_DIGITS + 1 :]
    try:
        return _decode(body) if int(crc, 16) == crc32c(body) else None
    except (ValueError, msgspec.MsgspecError):
        return None


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
