"""A client's spool: messages on its disk that are not yet published, and events that are not yet finished.

Each client has one file of JSON lines with checksums. Each line is the newest state of one message. Always true:

- Replaying the lines gives the states. The last line may be incomplete after a crash, and is then ignored.
- A file that has grown too large is replaced in one step by a new file with only the current states.
- Only one process at a time can open the spool of a client's name.
"""

import fcntl
import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeAlias

import anyio
import msgspec
from anyio import to_thread
from msgspec import Struct

from tweetwire.checked_lines import checked_line, line_body
from tweetwire.client.owner import ProcessOwner
from tweetwire.files import FILE_MODE, FOLDER_MODE, replacing_file, sync_data, write_all
from tweetwire.protocol.errors import SpoolTaken, SpoolUnusable
from tweetwire.protocol.handshakes import State
from tweetwire.protocol.names import is_name

__all__ = ["Incoming", "Outgoing", "Spool"]

COMPACT_BYTES: Final = 4 << 20


class Outgoing(Struct, tag="outgoing"):
    """A message to be published. `event` is its JSON."""

    topic: str
    id: str
    event: str
    state: State

    @property
    def key(self) -> tuple[str, str]:
        """The topic and the id, which identify the message."""
        return self.topic, self.id


class Incoming(Struct, tag="incoming"):
    """A delivered event. `line` is the JSON of the stored event."""

    topic: str
    name: str
    offset: int
    line: str
    state: State

    @property
    def key(self) -> tuple[str, str, int]:
        """The topic, the subscription's name and the offset, which identify the event."""
        return self.topic, self.name, self.offset


_Entry: TypeAlias = Outgoing | Incoming
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Entry).decode


class Spool:
    """The spool of the client `name` in the folder `directory`.

    Raises SpoolTaken if another process has it open, SpoolUnusable, and ValueError for a name that cannot name a file.
    """

    def __init__(self, directory: Path, name: str) -> None:
        if not is_name(name):
            raise ValueError(
                f"client name {name!r:.80} cannot name a spool; use 1-128 of A-Z a-z 0-9 _ . - and no dot at the start"
            )
        self.path = directory / f"{name}.spool"
        self.outgoing: dict[tuple[str, str], Outgoing] = {}
        self.incoming: dict[tuple[str, str, int], Incoming] = {}
        self._owner = ProcessOwner(f"the spool {self.path}")
        self._put = self._synced = 0
        self._syncing = anyio.Lock()
        try:
            directory.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            self._lock = os.open(directory / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
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
        """Write the new states of messages, and forget messages that are done.

        Raises SpoolUnusable, and then nothing has changed. Raises RuntimeError in a forked process, which shares the file.
        """
        self._owner.check_process()
        entries = list(entries)
        data = b"".join(map(_line, entries))
        try:
            write_all(self._file, data)
        except OSError as error:
            # An incomplete line would damage the next one.
            os.ftruncate(self._file, self._bytes)
            raise SpoolUnusable(self.path, error) from error
        for entry in entries:
            self._note(entry)
        self._bytes += len(data)
        self._put += 1

    async def sync(self) -> None:
        """Wait until all written states are on the disk. Tasks that wait at the same time share one sync.

        Raises SpoolUnusable, and RuntimeError in a forked process.
        """
        self._owner.check_process()
        wanted = self._put
        async with self._syncing:
            if self._synced < wanted:
                number = self._put
                try:
                    await to_thread.run_sync(sync_data, self._file)
                    self._compact()
                except OSError as error:
                    raise SpoolUnusable(self.path, error) from error
                self._synced = number

    def sync_now(self) -> None:
        """Block until all written states are on the disk, without an event loop. Raises the errors of `sync`."""
        self._owner.check_process()
        if self._synced < self._put:
            try:
                sync_data(self._file)
                self._compact()
            except OSError as error:
                raise SpoolUnusable(self.path, error) from error
            self._synced = self._put

    def close(self) -> None:
        """Close the files. The next client that opens the spool continues with its messages."""
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
        """Write the current states to a new file that replaces the old one, and return the open file."""
        entries: list[_Entry] = [*self.outgoing.values(), *self.incoming.values()]
        data = b"".join(map(_line, entries))
        with ExitStack() as on_failure:
            with replacing_file(self.path, mode=FILE_MODE) as new:
                write_all(new, data)
                file = os.dup(new)
                on_failure.callback(os.close, file)
            on_failure.pop_all()
        self._bytes = self._live = len(data)
        return file


def _line(entry: _Entry) -> bytes:
    return checked_line(_encode(entry))


def _parse(line: bytes) -> _Entry | None:
    body = line_body(line)
    try:
        return None if body is None else _decode(body)
    except (ValueError, msgspec.MsgspecError):
        return None
