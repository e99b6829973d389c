"""Stored lines → those whom they are for."""

from collections.abc import Sequence
from typing import Final

import anyio
from anyio import lowlevel

from broker.gateways.follow_graph import FollowGraph, recipients
from broker.gateways.inboxes import Inboxes
from broker.gateways.source_clients import Clients
from broker.gateways.source_lines import SourceEvent
from broker.gateways.source_log import SourceLog, Stored
from broker.gateways.source_state import kept_graph

__all__ = ["Router"]

RUN_EVENTS: Final = 1000
"""So many events are routed at once; others have their turn between."""
KEEP_GRAPH_EVERY: Final = 200_000
"""Events, at least; twice the graph's edges, if that is more, so that keeping costs each event the same."""
SEND_TURNS: Final = 3
"""After so many turns of the event loop each client that was woken has been sent to once."""
SHARE: Final = 4.0
"""While more is coming, so much more time goes into routing than into sending: with many clients, sends cost most."""
SLOW_POLL_S: Final = 0.005


class Router:
    """Applies the rules to what is stored. `arriving` are those who are connected and get what their inbox has."""

    def __init__(
        self,
        log: SourceLog,
        graph: FollowGraph,
        clients: Clients,
        inboxes: Inboxes | None,
        *,
        counts: dict[str, int],
        offset: int,
    ) -> None:
        self.arriving: set[bytes] = set()
        self.offset = offset
        self.ends = 0
        self._log = log
        self._graph = graph
        self._clients = clients
        self._inboxes = inboxes
        self._counts = counts
        self._graph_kept = offset
        self._flush_at = 0.0

    async def run(self) -> None:
        """Route what is stored, for ever."""
        while True:
            stored = await self._log.stored()
            for first in range(0, len(stored), RUN_EVENTS):
                self._route_run(stored[first : first + RUN_EVENTS])
                await self._flush(is_last=first + RUN_EVENTS >= len(stored) and not self._log.unstored)
                while self._is_someone_behind():
                    self._clients.flush()
                    await anyio.sleep(SLOW_POLL_S)

    def _route_run(self, run: Sequence[Stored]) -> None:
        reached = 0
        for offset, event in run:
            if event is not None:
                self._graph.apply(event)
                reached += self._route(offset, event)
        self._clients.hand_over()
        self.offset = run[-1].offset + 1
        if self._inboxes is not None:
            self._inboxes.hand_over(self.offset)
        self.ends += sum(stored.event is None for stored in run)
        self._counts["event_source_events"] += len(run)
        self._counts["event_source_lines"] += reached
        if self.offset - self._graph_kept >= max(KEEP_GRAPH_EVERY, 2 * self._graph.edges):
            self._keep_graph(run[-1].event)

    def _route(self, offset: int, event: SourceEvent) -> int:
        """Give one event to those it is for; returns to how many that are connected."""
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

    async def _flush(self, *, is_last: bool) -> None:
        """Have the clients sent to, unless more is coming and the last time has cost too much for that."""
        began_at = anyio.current_time()
        if is_last or began_at >= self._flush_at:
            self._clients.flush()
            for _ in range(SEND_TURNS):
                await lowlevel.checkpoint()
            ended_at = anyio.current_time()
            self._flush_at = ended_at + SHARE * (ended_at - began_at)
        await lowlevel.checkpoint()

    def _is_someone_behind(self) -> bool:
        return bool(self._clients.behind()) or (self._inboxes is not None and self._inboxes.is_behind)

    def _keep_graph(self, last: SourceEvent | None) -> None:
        if last is not None:
            self._graph_kept = self.offset
            self._log.keep(kept_graph(self._graph, self.offset, last.sequence + 1))
