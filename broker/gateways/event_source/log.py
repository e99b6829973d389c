"""The writer of the event source's log: it stores lines in sequence and reports which are stored."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import anyio

from broker.gateways.event_source.lines import SourceEvent
from broker.gateways.event_source.outlet import Outlet
from broker.gateways.event_source.state import FOLLOWERS_LOG, PRODUCER, SOURCE_LOG, end_event, line_event
from broker.server import Server
from tweetwire.protocol.events import IncomingEvent

__all__ = ["SourceLog", "StoredLines"]

UNSTORED_MAX: Final = 20_000
NO_INBOXES: Final = "no-inboxes"


class StoredLines(NamedTuple):
    """Stored lines from offset `first` on. None stands for the end of the source."""

    first: int
    events: list[SourceEvent | None]


class SourceLog:
    """The only writer of `SOURCE_LOG`. `due` is the sequence after the last stored line, which the source has to send next."""

    def __init__(self, server: Server, due: int, *, goes_on: bool) -> None:
        self.due = due
        self.goes_on = goes_on
        self._server = server
        self._outlet = Outlet(server, "event-source")
        server.broker.reserve_topic(SOURCE_LOG, self._outlet.session)
        self._unstored: list[SourceEvent | None] = []
        self._has_room = anyio.Event()

    @property
    def unstored(self) -> int:
        """How many lines are not stored yet."""
        return len(self._unstored)

    def append(self, events: Sequence[SourceEvent]) -> None:
        """Store lines, which must be in sequence."""
        if events:
            self._unstored += events
            self._give(SOURCE_LOG, [line_event(event) for event in events])

    def append_end(self) -> None:
        """Store the end of the source."""
        self._unstored.append(None)
        self._give(SOURCE_LOG, [end_event()])

    def keep(self, graph: list[IncomingEvent]) -> None:
        """Store a graph in the form that `kept_graph` returns."""
        self._give(FOLLOWERS_LOG, graph)

    async def room(self) -> None:
        """Wait while more than `UNSTORED_MAX` lines are not stored yet."""
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
        """Store that there are no inboxes.

        A later start with inboxes then does not fill them with the lines that were stored from now on.
        """
        known = self._server.broker.topics[SOURCE_LOG].producers.stored.get(PRODUCER)
        if known is not None and known.checkpoint != NO_INBOXES:
            self._server.broker.keep_checkpoint(SOURCE_LOG, PRODUCER, NO_INBOXES)
            self._server.do_work()

    def close(self) -> None:
        """End the gateway's session in the broker."""
        self._outlet.close()
        self._server.broker.unreserve_topic(SOURCE_LOG)

    def _give(self, topic: str, events: list[IncomingEvent]) -> None:
        self._outlet.give(topic, events)
        self._server.do_work()

    def _take(self, count: int) -> list[SourceEvent | None]:
        events = self._unstored[:count]
        del self._unstored[:count]
        self._has_room.set()
        for event in reversed(events):
            if event is not None or not self.goes_on:
                self.due = event.sequence + 1 if event is not None else 1
                break
        return events
