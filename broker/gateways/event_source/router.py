"""The router: gives each stored line to the clients and inboxes that it is for."""

from typing import Final

import anyio
from anyio import lowlevel

from broker.core import PartCounts
from broker.gateways.event_source.clients import Clients
from broker.gateways.event_source.follow_graph import FollowGraph, is_for_all, recipients
from broker.gateways.event_source.inboxes import Inboxes
from broker.gateways.event_source.lines import SourceEvent
from broker.gateways.event_source.log import SourceLog, StoredLines
from broker.gateways.event_source.state import kept_graph

__all__ = ["Router"]

RUN_EVENTS: Final = 1000
"""How many events are routed before other tasks run."""
KEEP_GRAPH_EVERY: Final = 200_000
"""The graph is stored after this many events, or after twice its number of edges if that is more.

So the average cost per event stays bounded.
"""
SHARE: Final = 4.0
"""How long the router waits after a send while more lines arrive, as a multiple of the duration of that send.

The cost of a send grows with the number of clients.
"""
SLOW_POLL_S: Final = 0.005
UNSENT_S: Final = 0.1
"""How long routed lines wait to be sent together with lines that are being stored."""


class Router:
    """Applies the rules to the stored lines.

    `arriving` holds the ids of connected clients that are still being sent the lines of their inbox. `ends` counts the
    ended sources whose lines have all been given to the clients.
    """

    def __init__(
        self,
        log: SourceLog,
        graph: FollowGraph,
        clients: Clients,
        inboxes: Inboxes | None,
        *,
        counts: PartCounts,
        offset: int,
    ) -> None:
        self.arriving: set[bytes] = set()
        self.offset = offset
        self.ends = 0
        self.is_busy = False
        self._log = log
        self._graph = graph
        self._clients = clients
        self._inboxes = inboxes
        self._counts = counts
        self._graph_kept = offset
        self._send_at = 0.0

    async def run(self) -> None:
        """Route stored lines forever."""
        while True:
            stored: list[StoredLines] = []
            # The disk may refuse the lines that are being stored, so limit how long routed lines wait for them.
            with anyio.move_on_after(UNSENT_S if self._log.unstored else None):
                stored = await self._log.stored()
            self.is_busy = True
            for offset, events in stored:
                for first in range(0, len(events), RUN_EVENTS):
                    await self._take(offset + first, events[first : first + RUN_EVENTS])
            if not self._log.unstored or not stored:
                await self._clients.send()
            self.is_busy = False

    async def _take(self, offset: int, run: list[SourceEvent | None]) -> None:
        self._route_run(offset, run)
        await self._send(is_due=None in run or self._is_someone_behind())
        self.ends += run.count(None)
        while self._is_someone_behind():
            await anyio.sleep(SLOW_POLL_S)

    def _route_run(self, offset: int, run: list[SourceEvent | None]) -> None:
        reached = 0
        self._clients.begin(event.line + b"\n" for event in run if event is not None and is_for_all(event))
        for at, event in enumerate(run, offset):
            if event is not None:
                self._graph.apply(event)
                reached += self._route(at, event)
        self._clients.finish()
        self.offset = offset + len(run)
        if self._inboxes is not None:
            self._inboxes.hand_over(self.offset)
        self._counts.add("events", len(run))
        self._counts.add("lines", reached)
        if self.offset - self._graph_kept >= max(KEEP_GRAPH_EVERY, 2 * self._graph.edges):
            self._keep_graph(run[-1])

    def _route(self, offset: int, event: SourceEvent) -> int:
        """Give an event to the clients that it is for. Returns how many of them are connected."""
        ids = recipients(event, self._graph.followers)
        if ids is None:
            self._clients.broadcast(event.line + b"\n")
            ids, reached = self.arriving, len(self._clients.by_id)
        else:
            reached = self._clients.give(ids, event.line + b"\n")
        if self._inboxes is not None:
            for id_ in ids:
                if id_ not in self._clients.by_id:
                    self._inboxes.put(id_, offset, event.line)
        return reached

    async def _send(self, *, is_due: bool) -> None:
        """Send to the clients if `is_due`, or if the pause after the last send is over."""
        began_at = anyio.current_time()
        if is_due or began_at >= self._send_at:
            await self._clients.send()
            ended_at = anyio.current_time()
            self._send_at = ended_at + SHARE * (ended_at - began_at)
        await lowlevel.checkpoint()

    def _is_someone_behind(self) -> bool:
        return self._clients.are_behind or (self._inboxes is not None and self._inboxes.is_behind)

    def _keep_graph(self, last: SourceEvent | None) -> None:
        if last is not None:
            self._graph_kept = self.offset
            self._log.keep(kept_graph(self._graph, self.offset, last.sequence + 1))
