"""The connected clients of the event source, and the lines that wait to be sent to each.

Always true: a client's lines are sent in the order of their sequences. A client with more than `BACKLOG_BYTES` unsent
delays the routing, and so the source. A client that does not read for some time is disconnected.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import anyio
from anyio import lowlevel
from anyio.abc import ByteStream, SocketAttribute

__all__ = ["Client", "Clients"]

BACKLOG_BYTES: Final = 256 << 10
SEND_BYTES: Final = 64 << 10
SENDS_AT_ONCE: Final = 100
"""How many clients get their lines before other tasks run. A send takes about 10 µs."""

_CLOSED: Final = -1


class Client:
    """One connection whose client has sent its id. `lines` are the next lines to send, in order. Call `close` at the end.

    `send` writes as many bytes as the system accepts without waiting, which costs much less than a send that may wait.
    `send_all` sends the rest.
    """

    __slots__ = (
        *("_begun", "_file", "_has_changed", "_is_sending", "_rest", "_stream"),
        *("broadcasts", "id", "is_cut_off", "is_ending", "lines"),
    )

    def __init__(self, id_: bytes, stream: ByteStream) -> None:
        self.id = id_
        self.is_ending = False
        self.is_cut_off = False
        self.lines: list[bytes] = []
        # How many bytes of the current run's broadcasts were already added to `lines`.
        self.broadcasts = 0
        self._stream = stream
        # A duplicate, since the stream closes its descriptor when the connection breaks, and the number may be used again.
        self._file = os.dup(stream.extra(SocketAttribute.raw_socket).fileno())
        # `_rest` are the bytes that the system has not accepted. `_begun` is the accepted part of the first line.
        self._rest = b""
        self._begun = b""
        self._is_sending = False
        self._has_changed = anyio.Event()

    @property
    def is_behind(self) -> bool:
        """Whether more than `BACKLOG_BYTES` are unsent, so that the routing has to wait."""
        return len(self._rest) > BACKLOG_BYTES

    def send(self) -> None:
        """Send as many bytes as the system accepts without waiting."""
        self._rest = b"".join((self._rest, *self.lines))
        self.lines.clear()
        if self._is_sending or not self._rest:
            return
        # If the buffer is full or the connection broken, `send_all` waits or raises.
        with suppress(OSError):
            self._note_sent(os.write(self._file, self._rest))
        if self._rest:
            self._has_changed.set()

    def end(self) -> None:
        """Let `send_all` return once all bytes are sent."""
        self.is_ending = True
        self.send()
        self._has_changed.set()

    def unsent(self) -> bytes:
        """Return the lines that are not sent completely. The client may have received the beginning of the first one."""
        return b"".join((self._begun, self._rest, *self.lines))

    def close(self) -> None:
        """Close this descriptor. The stream closes the connection."""
        file, self._file = self._file, _CLOSED
        os.close(file)

    async def send_all(self, stalled_after_s: float) -> None:
        """Send the unsent bytes, until `end` is called or the client has not read for `stalled_after_s` seconds.

        Raises the errors of a broken stream.
        """
        while not (self.is_ending and not self._rest):
            if not self._rest:
                self._has_changed = anyio.Event()
                await self._has_changed.wait()
                continue
            self._is_sending = True
            some = self._rest[:SEND_BYTES]
            with anyio.move_on_after(stalled_after_s) as patience:
                await self._stream.send(some)
            if patience.cancelled_caught:
                self.is_cut_off = True
                return
            self._note_sent(len(some))
            self._is_sending = False

    def _note_sent(self, count: int) -> None:
        end = self._rest.rfind(b"\n", 0, count) + 1
        self._begun = self._rest[end:count] if end else self._begun + self._rest[:count]
        self._rest = self._rest[count:]


class Clients:
    """The connected clients by id."""

    def __init__(self) -> None:
        self.by_id: dict[bytes, Client] = {}
        self._broadcasts = b""
        self._passed = 0

    def begin(self, broadcasts: Iterable[bytes]) -> None:
        """Begin a run of events that has these broadcasts. No client is added or removed until `finish`.

        The run's broadcasts are joined beforehand, so that the broadcasts between two lines of a client are one slice.
        """
        self._broadcasts = b"".join(broadcasts)
        self._passed = 0

    def broadcast(self, line: bytes) -> None:
        """Note the next broadcast, so that lines given from now on are sent after it."""
        self._passed += len(line)

    def give(self, ids: Iterable[bytes], line: bytes) -> int:
        """Give a line to the connected clients among `ids`, and return how many there are. `send` sends it."""
        find, broadcasts, passed, reached = self.by_id.get, self._broadcasts, self._passed, 0
        for id_ in ids:
            client = find(id_)
            if client is not None:
                if client.broadcasts != passed:
                    client.lines.append(broadcasts[client.broadcasts : passed])
                    client.broadcasts = passed
                client.lines.append(line)
                reached += 1
        return reached

    def finish(self) -> None:
        """End a run: give each client the broadcasts that it does not have yet."""
        if not self._broadcasts:
            return
        end = len(self._broadcasts)
        rests = {0: self._broadcasts}
        for client in self.by_id.values():
            if client.broadcasts != end:
                rest = rests.get(client.broadcasts)
                if rest is None:
                    rest = rests[client.broadcasts] = self._broadcasts[client.broadcasts :]
                client.lines.append(rest)
            client.broadcasts = 0

    async def send(self) -> None:
        """Send all lines given until now. A few large sends cost much less than many small ones."""
        for number, client in enumerate([client for client in self.by_id.values() if client.lines], 1):
            client.send()
            if number % SENDS_AT_ONCE == 0:
                await lowlevel.checkpoint()

    @property
    def are_behind(self) -> bool:
        """Whether the routing has to wait for a client."""
        return any(client.is_behind for client in self.by_id.values())
