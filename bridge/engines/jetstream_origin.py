"""Read streams of NATS JetStream, also those that other programs write."""

from collections.abc import AsyncIterator
from typing import Final

from bridge.central import Arrival, EntriesRemoved, NotThereYet, Source
from bridge.engines.jetstream_link import JetStreamLink, NatsLogin
from bridge.engines.jetstream_reading import Delivered, StreamReader, entries_of
from bridge.engines.jetstream_streams import find_stream
from tweetwire.protocol.errors import StartError

__all__ = ["JetStreamOrigin"]

_BATCH: Final = 1000


class JetStreamOrigin:
    """Reads a stream. A place is the sequence of a message."""

    def __init__(self, login: NatsLogin, stream: str, *, batch: int = _BATCH) -> None:
        self._link = JetStreamLink(login)
        self._stream = stream
        self._batch = batch
        self._reader = StreamReader(self._link, stream)
        self._excused = ""
        self._held: list[Delivered] = []

    async def open(self, position: str, centre: str, *, is_exact: bool) -> Source:
        """Look whether reading can continue. Raises the errors of `Origin.open`."""
        await self._link.connect()
        self._reader.reset()
        self._held = []
        self._excused = "" if is_exact else position
        state = await find_stream(self._link, self._stream)
        if state is None:
            if position:
                return Source("", "", is_replaced=True)
            raise NotThereYet(f"there is no stream {self._stream}")
        retention = state.config.get("retention", "limits")
        if retention != "limits":
            raise StartError(
                f"the stream {self._stream} has the retention {retention}, and a reader of it would take messages from its "
                "other consumers; give it the retention limits, or read a stream that has it as a source"
            )
        is_other = bool(centre) and centre != state.centre
        last = str(state.last) if state.last else ""
        return Source(state.centre, last, is_replaced=bool(position) and (is_other or state.last < int(position)))

    async def read(self, after: str, wait_s: float) -> list[Arrival]:
        """Return entries after a place. Raises the errors of `Origin.read`."""
        last = int(after) if after else 0
        found = self._held if self._held and self._held[0].sequence > last else []
        self._held = []
        if not found:
            found = await self._reader.read(last, self._batch, wait_s)
        if after:
            found = await self._before_gap(after, found)
        arrivals = [one.entry for one in found if one.entry is not None]
        if found and not arrivals:
            return await self.read(str(found[-1].sequence), wait_s)
        return arrivals

    def check_place(self, text: str) -> str:
        """Return a sequence."""
        if not (text.isdecimal() and text.isascii() and len(text) < 20):
            raise ValueError("write earliest, latest or the sequence of a message")
        return str(int(text))

    def entries(self) -> AsyncIterator[list[Arrival]]:
        """Read the whole stream."""
        return entries_of(self._link, self._stream)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._link.aclose()

    async def _before_gap(self, after: str, found: list[Delivered]) -> list[Delivered]:
        """Return the messages before the first gap, and hold the others. Raises EntriesRemoved if the gap comes first.

        Only what a limit of the stream has removed is a gap: everything before its first message. A message that is missing
        after that one was deleted or replaced on purpose.
        """
        if not found or found[-1].sequence - int(after) == len(found):
            return found
        state = await find_stream(self._link, self._stream)
        first = 0 if state is None else state.first
        previous = int(after)
        for number, one in enumerate(found):
            if previous + 1 < first and one.sequence > previous + 1 and self._excused != str(previous):
                self._held = found[number:]
                if number == 0:
                    self._excused = after
                    raise EntriesRemoved(after, str(one.sequence))
                return found[:number]
            previous = one.sequence
        return found
