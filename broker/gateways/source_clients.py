"""The event source's clients that are connected: what waits to leave for each, and what happens to one that is slow.

Always true: a client's lines leave in the order of their sequences. A client that takes nothing for some time is
cut off; until then one that is behind by more than `BACKLOG_BYTES` holds up the routing, and thereby the source.
"""

import os
from collections.abc import Collection, Iterable
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
    """One connection that has said who it is; `close` has to follow.

    What is added is sent as far as the system takes it at once, which costs a fifth of a send that may have to wait.
    What is left is sent by `send_all`.
    """

    __slots__ = (
        *("_begun", "_file", "_has_changed", "_is_sending", "_stream", "_waiting"),
        *("broadcasts", "fresh", "id", "is_cut_off", "is_ending", "size"),
    )

    def __init__(self, id_: bytes, stream: ByteStream) -> None:
        self.id = id_
        self.size = 0
        self.is_ending = False
        self.is_cut_off = False
        # Given since the last hand-over: its own lines, and how far into the broadcasts they reach.
        self.fresh: list[bytes] = []
        self.broadcasts = 0
        self._stream = stream
        # A descriptor of its own: the stream's closes as soon as the connection breaks, and another may get its number.
        self._file = os.dup(stream.extra(SocketAttribute.raw_socket).fileno())
        self._waiting: list[bytes] = []
        # What has left of the first line that waits.
        self._begun = b""
        self._is_sending = False
        self._has_changed = anyio.Event()

    def add(self, lines: bytes) -> None:
        """Put whole lines behind those that wait to leave."""
        self._waiting.append(lines)
        self.size += len(lines)

    def send(self) -> None:
        """Send what the system takes at once."""
        if self._is_sending:
            return
        data = b"".join(self._waiting)
        try:
            count = os.write(self._file, data)
        except OSError:
            # Either there is no room or the connection is broken, which `send_all` will see.
            count = 0
        self._waiting = [data[count:]] if count < len(data) else []
        self._note_sent(data, count)
        if self._waiting:
            self._has_changed.set()

    def end(self) -> None:
        """Let `send_all` return once everything has left."""
        self.is_ending = True
        self._has_changed.set()

    def unsent(self) -> bytes:
        """Return what has not left, in whole lines, some of which may have arrived nevertheless."""
        return self._begun + b"".join(self._waiting)

    def close(self) -> None:
        """Let go of the connection, which is the stream's to close."""
        file, self._file = self._file, _CLOSED
        os.close(file)

    async def send_all(self, stalled_after_s: float) -> None:
        """Send what is left, until `end`, or until the client takes nothing for so long.

        Raises what a stream raises that is broken.
        """
        while not (self.is_ending and not self._waiting):
            if not self._waiting:
                self._has_changed = anyio.Event()
                await self._has_changed.wait()
                continue
            self._is_sending = True
            with anyio.move_on_after(stalled_after_s) as patience:
                await self._send_some()
            if patience.cancelled_caught:
                self.is_cut_off = True
                return
            self._is_sending = False

    async def _send_some(self) -> None:
        data = b"".join(self._waiting)
        self._waiting = [data[at : at + SEND_BYTES] for at in range(0, len(data), SEND_BYTES)]
        await self._stream.send(self._waiting[0])
        self._note_sent(self._waiting[0], len(self._waiting[0]))
        del self._waiting[0]

    def _note_sent(self, data: bytes, count: int) -> None:
        """`count` bytes of `data`, which was first of what waits, have left."""
        self.size -= count
        end = data.rfind(b"\n", 0, count) + 1
        self._begun = data[end:count] if end else self._begun + data[:count]


class Clients:
    """Those who are connected, by id; each id at most once."""

    def __init__(self) -> None:
        self.by_id: dict[bytes, Client] = {}
        self._broadcasts = bytearray()

    def join(self, client: Client) -> None:
        """Let a client get what is given from now on."""
        client.broadcasts = len(self._broadcasts)
        self.by_id[client.id] = client

    def leave(self, client: Client) -> None:
        """Let a client get nothing more; it has in `unsent` what it was given."""
        del self.by_id[client.id]
        client.add(b"".join([*client.fresh, self._broadcasts[client.broadcasts :]]))

    def broadcast(self, line: bytes) -> None:
        """Give a line to all who are connected. What is given leaves by `send`."""
        self._broadcasts += line

    def give(self, ids: Iterable[bytes], line: bytes) -> int:
        """Give a line to those of `ids` who are connected; returns how many they are."""
        find, behind, reached = self.by_id.get, len(self._broadcasts), 0
        for id_ in ids:
            client = find(id_)
            if client is not None:
                if client.broadcasts != behind:
                    client.fresh.append(bytes(self._broadcasts[client.broadcasts :]))
                    client.broadcasts = behind
                client.fresh.append(line)
                reached += 1
        return reached

    async def send(self) -> None:
        """Send everything given until now. Few large sends cost much less than many small ones."""
        self._hand_over()
        for number, client in enumerate(list(self.by_id.values()), 1):
            if client.size:
                client.send()
            if number % SENDS_AT_ONCE == 0:
                await lowlevel.checkpoint()

    def _hand_over(self) -> None:
        """Put everything given behind what waits to leave.

        The broadcasts are shared by all who have no line of their own between them.
        """
        everybody = bytes(self._broadcasts)
        self._broadcasts.clear()
        rests: dict[int, bytes] = {len(everybody): b""}
        for client in self.by_id.values():
            rest = rests.get(client.broadcasts)
            if rest is None:
                rest = rests[client.broadcasts] = everybody[client.broadcasts :]
            if rest or client.fresh:
                client.fresh.append(rest)
                client.add(b"".join(client.fresh))
                client.fresh.clear()
            client.broadcasts = 0

    def behind(self) -> Collection[Client]:
        """Return those who have so much to take that the routing has to wait for them."""
        return [client for client in self.by_id.values() if client.size > BACKLOG_BYTES]
