"""The event source's lines on their way to the disk, in sequence."""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import anyio

from broker.events import IncomingEvent
from broker.gateways.outlet import Outlet
from broker.gateways.source_lines import SourceEvent
from broker.gateways.source_state import FOLLOWERS_LOG, PRODUCER, SOURCE_LOG, end_event, line_event
from broker.protocol.commands import Checkpoint
from broker.server import Server

__all__ = ["SourceLog", "Stored"]

UNSTORED_MAX: Final = 20_000
NO_INBOXES: Final = "no-inboxes"


class Stored(NamedTuple):
    """A line that is stored at `offset`; `event` is None for the source's end."""

    offset: int
    event: SourceEvent | None


class SourceLog:
    """Writes `SOURCE_LOG`, alone. `due` is the sequence that has to be sent next if nothing more is stored."""

    def __init__(self, server: Server, due: int, *, goes_on: bool) -> None:
        self.due = due
        self.goes_on = goes_on
        self._server = server
        self._outlet = Outlet(server, "event-source")
        server.broker.owners[SOURCE_LOG] = self._outlet.session
        self._unstored: deque[SourceEvent | None] = deque()
        self._has_room = anyio.Event()

    @property
    def unstored(self) -> int:
        """How many lines are on their way."""
        return len(self._unstored)

    def append(self, events: Sequence[SourceEvent]) -> None:
        """Store lines, which are in sequence."""
        if events:
            self._unstored += events
            self._give(SOURCE_LOG, [line_event(event) for event in events])

    def append_end(self) -> None:
        """Store that the source has ended."""
        self._unstored.append(None)
        self._give(SOURCE_LOG, [end_event()])

    def keep(self, graph: list[IncomingEvent]) -> None:
        """Store a graph, as `kept_graph` gives it."""
        self._give(FOLLOWERS_LOG, graph)

    async def room(self) -> None:
        """Wait while as many lines are on their way as may be."""
        while len(self._unstored) > UNSTORED_MAX:
            self._has_room = anyio.Event()
            await self._has_room.wait()

    async def stored(self) -> list[Stored]:
        """Wait until lines are stored, and return them in sequence."""
        while True:
            stored = [event for topic, event in await self._outlet.stored() if topic == SOURCE_LOG]
            if stored:
                return [self._take(event) for event in stored]

    def forget_routed(self) -> None:
        """There are no inboxes: a later start with inboxes must not fill them with what comes now."""
        known = self._server.broker.topics[SOURCE_LOG].producers.stored.get(PRODUCER)
        if known is not None and known.checkpoint != NO_INBOXES:
            command = Checkpoint(SOURCE_LOG, PRODUCER, NO_INBOXES)
            self._server.broker.execute(self._outlet.session, command, self._server.now_ms())
            self._server.carry_out()

    def close(self) -> None:
        """Leave the broker."""
        self._outlet.close()
        self._server.broker.owners.pop(SOURCE_LOG, None)

    def _give(self, topic: str, events: list[IncomingEvent]) -> None:
        self._outlet.give(topic, events)
        self._server.carry_out()

    def _take(self, stored: IncomingEvent) -> Stored:
        event = self._unstored.popleft()
        self._has_room.set()
        if event is not None:
            self.due = event.sequence + 1
        elif not self.goes_on:
            self.due = 1
        # The broker has given the event its offset when it took it in.
        assert isinstance(stored.offset, int)  # noqa: S101
        return Stored(stored.offset, event)
