"""The event source's lines on their way to the disk, in sequence."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import anyio

from broker.events import IncomingEvent
from broker.gateways.outlet import Outlet
from broker.gateways.source_lines import SourceEvent
from broker.gateways.source_state import FOLLOWERS_LOG, PRODUCER, SOURCE_LOG, end_event, line_event
from broker.protocol.commands import Checkpoint
from broker.server import Server

__all__ = ["SourceLog", "StoredLines"]

UNSTORED_MAX: Final = 20_000
NO_INBOXES: Final = "no-inboxes"


class StoredLines(NamedTuple):
    """Lines that are stored from offset `first` on; None stands for the source's end."""

    first: int
    events: list[SourceEvent | None]


class SourceLog:
    """Writes `SOURCE_LOG`, alone. `due` is the sequence that has to be sent next if nothing more is stored."""

    def __init__(self, server: Server, due: int, *, goes_on: bool) -> None:
        self.due = due
        self.goes_on = goes_on
        self._server = server
        self._outlet = Outlet(server, "event-source")
        server.broker.owners[SOURCE_LOG] = self._outlet.session
        self._unstored: list[SourceEvent | None] = []
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

    async def stored(self) -> list[StoredLines]:
        """Wait until lines are stored, and return them in sequence."""
        while True:
            stored = [stored for stored in await self._outlet.stored() if stored.topic == SOURCE_LOG]
            if stored:
                return [StoredLines(first, self._take(count)) for _, first, count in stored]

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

    def _take(self, count: int) -> list[SourceEvent | None]:
        events = self._unstored[:count]
        del self._unstored[:count]
        self._has_room.set()
        for event in reversed(events):
            if event is not None or not self.goes_on:
                self.due = event.sequence + 1 if event is not None else 1
                break
        return events
