"""The event source's clients that are connected: what waits to leave for each, and what happens to one that is slow.

Always true: a client's lines leave in the order of their sequences. A client that takes nothing for some time is
cut off; until then one that is behind by more than `BACKLOG_BYTES` holds up the routing, and thereby the source.
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
"""So many clients are sent to until others have their turn; a send takes about 10 µs."""

_CLOSED: Final = -1


class Client:
    """One connection that has said who it is; `close` has to follow. `lines` is what it is given, in order.

    It is sent as far as the system takes it at once, which costs much less than a send that may have to wait. What is
    left is sent by `send_all`.
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
        # How far into the run's broadcasts `lines` reach.
        self.broadcasts = 0
        self._stream = stream
        # A descriptor of its own: the stream's closes as soon as the connection breaks, and another may get its number.
        self._file = os.dup(stream.extra(SocketAttribute.raw_socket).fileno())
        # What the system did not take, and what it has taken of the first line of that.
        self._rest = b""
        self._begun = b""
        self._is_sending = False
        self._has_changed = anyio.Event()

    @property
    def is_behind(self) -> bool:
        """Whether it has so much to take that the routing has to wait for it."""
        return len(self._rest) > BACKLOG_BYTES

    def send(self) -> None:
        """Send what the system takes at once."""
        self._rest = b"".join((self._rest, *self.lines))
        self.lines.clear()
        if self._is_sending or not self._rest:
            return
        # Where there is no room or the connection is broken, `send_all` will see it.
        with suppress(OSError):
            self._note_sent(os.write(self._file, self._rest))
        if self._rest:
            self._has_changed.set()

    def end(self) -> None:
        """Let `send_all` return once everything has left."""
        self.is_ending = True
        self.send()
        self._has_changed.set()

    def unsent(self) -> bytes:
        """Return what has not left, in whole lines, some of which may have arrived nevertheless."""
        return b"".join((self._begun, self._rest, *self.lines))

    def close(self) -> None:
        """Let go of the connection, which is the stream's to close."""
        file, self._file = self._file, _CLOSED
        os.close(file)

    async def send_all(self, stalled_after_s: float) -> None:
        """Send what is left, until `end`, or until the client takes nothing for so long.

        Raises what a stream raises that is broken.
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
    """Those who are connected, by id; each id at most once."""

    def __init__(self) -> None:
        self.by_id: dict[bytes, Client] = {}
        self._broadcasts = b""
        self._passed = 0

    def begin(self, broadcasts: Iterable[bytes]) -> None:
        """Begin a run of events, of which these are the broadcasts; nobody comes or goes until `finish`.

        That they are known beforehand makes each client's share of them a slice.
        """
        self._broadcasts = b"".join(broadcasts)
        self._passed = 0

    def broadcast(self, line: bytes) -> None:
        """The next broadcast's turn has come."""
        self._passed += len(line)

    def give(self, ids: Iterable[bytes], line: bytes) -> int:
        """Give a line to those of `ids` who are connected; returns how many they are. It leaves by `send`."""
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
        """End a run."""
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
        """Send everything given until now. Few large sends cost much less than many small ones."""
        for number, client in enumerate([client for client in self.by_id.values() if client.lines], 1):
            client.send()
            if number % SENDS_AT_ONCE == 0:
                await lowlevel.checkpoint()

    @property
    def are_behind(self) -> bool:
        """Whether the routing has to wait for one of them."""
        return any(client.is_behind for client in self.by_id.values())
