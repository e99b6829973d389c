"""The event source's clients that are connected: what waits to leave for each, and what happens to one that is slow.

Always true: a client's lines leave in the order of their sequences. A client that takes nothing for some time is
cut off; until then one that is behind by more than `BACKLOG_BYTES` holds up the routing, and thereby the source.
"""

from collections.abc import Collection, Iterable
from typing import Final

import anyio
import structlog
from anyio.abc import ByteStream

__all__ = ["Client", "Clients"]

BACKLOG_BYTES: Final = 256 << 10
SEND_BYTES: Final = 64 << 10

logger = structlog.stdlib.get_logger()


class Client:
    """One connection that has said who it is."""

    __slots__ = ("_chunks", "_has_changed", "_stream", "broadcasts", "fresh", "id", "is_cut_off", "is_ending", "size")

    def __init__(self, id_: bytes, stream: ByteStream) -> None:
        self.id = id_
        self.size = 0
        self.is_ending = False
        self.is_cut_off = False
        # Of the run of events that is being routed: its lines, and how far into the run's broadcasts they reach.
        self.fresh: list[bytes] = []
        self.broadcasts = 0
        self._stream = stream
        self._chunks: list[bytes] = []
        self._has_changed = anyio.Event()

    def add(self, lines: bytes) -> None:
        """Put whole lines behind those that wait to leave; `wake` has them sent."""
        self._chunks.append(lines)
        self.size += len(lines)

    def wake(self) -> None:
        """There is something to send."""
        self._has_changed.set()

    def end(self) -> None:
        """Let `send_all` return once everything has left."""
        self.is_ending = True
        self._has_changed.set()

    def unsent(self) -> bytes:
        """Return what has not left, some of which may have arrived nevertheless."""
        return b"".join(self._chunks)

    async def send_all(self, stalled_after_s: float) -> None:
        """Send what is added, until `end`, or until the client takes nothing for so long.

        Raises what a stream raises that is broken.
        """
        while not (self.is_ending and not self._chunks):
            if not self._chunks:
                self._has_changed = anyio.Event()
                await self._has_changed.wait()
                continue
            count, data = self._next()
            with anyio.move_on_after(stalled_after_s) as patience:
                await self._stream.send(data)
            if patience.cancelled_caught:
                self.is_cut_off = True
                return
            del self._chunks[:count]
            self.size -= len(data)

    def _next(self) -> tuple[int, bytes]:
        """Return how many chunks come to about `SEND_BYTES`, and them."""
        size = count = 0
        for chunk in self._chunks:
            size += len(chunk)
            count += 1
            if size >= SEND_BYTES:
                break
        return count, b"".join(self._chunks[:count])


class Clients:
    """Those who are connected, by id; each id at most once."""

    def __init__(self) -> None:
        self.by_id: dict[bytes, Client] = {}
        self._broadcasts = bytearray()

    def broadcast(self, line: bytes) -> None:
        """Give a line to all who are connected. What is given leaves by `hand_over`."""
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

    def hand_over(self) -> None:
        """Put everything given until now behind what waits to leave.

        The broadcasts of a run are shared by all who have no line of their own between them.
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

    def flush(self) -> None:
        """Have everything handed over sent. Few large sends cost much less than many small ones."""
        for client in self.by_id.values():
            if client.size:
                client.wake()

    def behind(self) -> Collection[Client]:
        """Return those who have so much to take that the routing has to wait for them."""
        return [client for client in self.by_id.values() if client.size > BACKLOG_BYTES]
