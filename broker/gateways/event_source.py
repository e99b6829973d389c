"""The event source gateway: one source's numbered events, each client its own, in sequence.

One line's path: the intake parses it and holds it until its turn → it is stored in the topic `event_source` → the router
applies the rules and puts it where it belongs. Always true:

- nothing is routed before it is stored, so whatever a client has got is still so after a kill;
- the log has the lines in sequence, each once, and the graph is what the log makes of it;
- what the source has sent and is not stored (held, or on its way) is lost with the broker. The source learns by the line
  ``?`` from which sequence on it has to send again: ``+OK event_source next=<sequence>``.

A client without an inbox gets each line once at most: after a kill, those that were stored and not yet in its socket are
lost to it. One with an inbox gets each at least once; what was routed in the last second comes again after a kill.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import anyio
import structlog
from anyio import to_thread
from anyio.abc import ByteStream

from broker.gateways.attendance import Attendance
from broker.gateways.doors import Doors
from broker.gateways.inboxes import Inboxes
from broker.gateways.source_clients import Clients
from broker.gateways.source_intake import Intake
from broker.gateways.source_log import SourceLog
from broker.gateways.source_router import Router
from broker.gateways.source_state import FOLLOWERS_LOG, PRODUCER, SOURCE_LOG, recover
from broker.server import Server

__all__ = ["EventSource", "EventSourceOptions"]

DRAIN_S: Final = 5.0
POLL_S: Final = 0.01

logger = structlog.stdlib.get_logger()


@dataclass(frozen=True)
class EventSourceOptions:
    """Where it listens, and its limits.

    `hold_max` events are held until the source is slowed. A client that takes nothing for `stalled_after_s` seconds is cut
    off. `goes_on`: a source that follows one which has ended goes on with its sequences, instead of beginning at 1.
    """

    host: str
    port: int
    client_port: int
    hold_max: int
    clients_max: int
    stalled_after_s: float
    has_inboxes: bool
    goes_on: bool


class EventSource:
    """The gateway on a server that is open."""

    def __init__(self, server: Server, options: EventSourceOptions) -> None:
        self._server = server
        self._options = options
        self._counts = server.broker.counts
        names = ("events", "lines", "repeated", "rejected", "given_up", "cut_off", "clients", "held", "sources")
        self._counts |= {f"event_source_{name}": 0 for name in names}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Stand where the last one stood, and serve until the end of the block. Raises StartError for a taken port."""
        options = self._options
        doors = Doors(options.host, options.port, options.client_port, options.clients_max)
        async with doors.open(), anyio.create_task_group() as tasks:
            await self._recover()
            tasks.start_soon(self._router.run)
            if self._inboxes is not None:
                tasks.start_soon(self._inboxes.store)
            async with anyio.create_task_group() as connections:
                async with anyio.create_task_group() as sources:
                    sources.start_soon(doors.let_in_clients, self._attendance.serve, connections)
                    sources.start_soon(doors.let_in_sources, self._serve_source, sources)
                    where, clients = doors.addresses
                    logger.info("event source gateway", events_on=where, clients_on=clients, next=self._log.due)
                    yield
                    sources.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await self._drain()
                connections.cancel_scope.cancel()
            tasks.cancel_scope.cancel()

    async def _recover(self) -> None:
        options, broker = self._options, self._server.broker
        topic, kept = broker.topic(SOURCE_LOG), broker.topic(FOLLOWERS_LOG)
        routed = self._routed() if options.has_inboxes else None
        state = await to_thread.run_sync(lambda: recover(topic.log, kept.log, routed=routed, goes_on=options.goes_on))
        clients = Clients()
        self._log = SourceLog(self._server, state.sequence, goes_on=options.goes_on)
        self._inboxes = None if routed is None else Inboxes(self._server, routed)
        self._router = Router(self._log, state.graph, clients, self._inboxes, counts=self._counts, offset=topic.visible)
        self._attendance = Attendance(
            clients, self._router, self._inboxes, counts=self._counts, stalled_after_s=options.stalled_after_s
        )
        self._intake = Intake(self._server, self._log, options.hold_max)
        if self._inboxes is None:
            self._log.forget_routed()
        else:
            for missed in state.missed:
                self._inboxes.put(missed.id, missed.offset, missed.line)
            self._inboxes.hand_over(topic.visible)

    def _routed(self) -> int:
        """Return the offset from which on the inboxes may lack something; the log's end where there were none."""
        topic = self._server.broker.topics[SOURCE_LOG]
        known = topic.producers.stored.get(PRODUCER)
        text = (known.checkpoint if known is not None else None) or ""
        return int(text) if text.isdecimal() else topic.visible

    async def _serve_source(self, stream: ByteStream) -> None:
        """Take a source's lines; when it has ended, close the clients, once they have got everything."""
        self._counts["event_source_sources"] += 1
        try:
            await self._serve_until_its_end(stream)
        finally:
            self._counts["event_source_sources"] -= 1

    async def _serve_until_its_end(self, stream: ByteStream) -> None:
        logger.info("an event source has come", next=self._log.due)
        ends = self._router.ends
        try:
            await self._intake.read(stream)
        except (anyio.BrokenResourceError, OSError):
            logger.warning("lost the event source; it may come again and go on", next=self._log.due)
            return
        while self._router.ends == ends:
            await anyio.sleep(POLL_S)
        await self._attendance.dismiss()
        logger.info("the event source has ended")

    async def _drain(self) -> None:
        """End in this order: what is on its way is routed, then sent to the clients, then what is left put into inboxes."""
        with anyio.move_on_after(DRAIN_S):
            while self._log.unstored or self._router.is_busy:
                await anyio.sleep(POLL_S)
        with anyio.move_on_after(DRAIN_S):
            await self._attendance.dismiss()
        await self._attendance.cut_off_all()
        if self._inboxes is not None:
            with anyio.move_on_after(DRAIN_S):
                while self._inboxes.unconfirmed:
                    await anyio.sleep(POLL_S)
            self._inboxes.keep()
            self._inboxes.close()
        self._log.close()
