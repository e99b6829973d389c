"""The event source gateway: it reads a source's numbered events and sends each client its own, in sequence.

The intake parses a line and holds it until its turn. Then the line is stored in the topic `event_source`. The router
applies the rules and gives the line to clients and inboxes. Always true:

- no line is routed before it is stored, so the log holds every line that a client has received, also after a kill;
- the log has the lines in sequence, each once, and the follow graph is computed from the log alone;
- lines that the source has sent and that are not stored are lost if the broker is killed. To ask from which sequence on
  it must send again, the source sends the line ``?``. The answer is ``+OK event_source next=<sequence>``.

A client without an inbox gets each line at most once. A kill loses the stored lines that were not yet in its socket. A
client with an inbox gets each line at least once. After a kill, it gets the lines routed in the last second again.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import anyio
import structlog
from anyio import to_thread

from broker.gateways.event_source.attendance import Attendance
from broker.gateways.event_source.callers import Caller
from broker.gateways.event_source.clients import Clients
from broker.gateways.event_source.doors import Doors
from broker.gateways.event_source.inboxes import INBOXES, Inboxes
from broker.gateways.event_source.intake import Intake
from broker.gateways.event_source.log import SourceLog
from broker.gateways.event_source.router import Router
from broker.gateways.event_source.state import FOLLOWERS_LOG, PRODUCER, SOURCE_LOG, recover
from broker.server import Server

__all__ = ["EventSource", "EventSourceOptions"]

DRAIN_S: Final = 5.0
POLL_S: Final = 0.01

logger = structlog.stdlib.get_logger()


@dataclass(frozen=True)
class EventSourceOptions:
    """The addresses and limits of the gateway.

    - `hold_max`: how many events are held before the source is read slowly.
    - `stalled_after_s`: after how many seconds without reading a client is disconnected.
    - `silence_s`: after how many silent seconds a source is disconnected if another one waits.
    - `goes_on`: whether a source continues the sequences of the previous one that has ended, instead of beginning at 1.
    """

    host: str
    port: int
    client_port: int
    hold_max: int
    clients_max: int
    stalled_after_s: float
    has_inboxes: bool
    goes_on: bool
    silence_s: float = 30.0
    clients_per_address: int | None = None


class EventSource:
    """The gateway of one server, which must be open."""

    def __init__(self, server: Server, options: EventSourceOptions) -> None:
        self._server = server
        self._options = options
        names = ("events", "lines", "repeated", "rejected", "given_up", "cut_off", "clients", "held", "sources")
        self._counts = server.broker.counts_of("event_source", names)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Restore the gateway's state, and serve until the end of the block. Raises StartError if a port is in use."""
        options = self._options
        doors = Doors(
            options.host,
            options.port,
            options.client_port,
            silence_s=options.silence_s,
            clients_max=options.clients_max,
            clients_per_address=options.clients_per_address,
        )
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
                    logger.info(
                        "event source gateway is listening", events_on=where, clients_on=clients, next=self._log.due
                    )
                    yield
                    sources.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await self._drain()
                connections.cancel_scope.cancel()
            tasks.cancel_scope.cancel()

    async def _recover(self) -> None:
        options, broker = self._options, self._server.broker
        broker.protect_topics(FOLLOWERS_LOG)
        broker.protect_topics(INBOXES)
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
        self._intake = Intake(self._server, self._log, self._counts, options.hold_max)
        if self._inboxes is None:
            self._log.forget_routed()
        else:
            for missed in state.missed:
                self._inboxes.put(missed.id, missed.offset, missed.line)
            self._inboxes.hand_over(topic.visible)

    def _routed(self) -> int:
        """Return the offset from which on the inboxes may lack lines, or the log's end if there were no inboxes."""
        topic = self._server.broker.topics[SOURCE_LOG]
        known = topic.producers.stored.get(PRODUCER)
        text = (known.checkpoint if known is not None else None) or ""
        return int(text) if text.isdecimal() else topic.visible

    async def _serve_source(self, stream: Caller) -> None:
        """Read a source's lines. When the source has ended, close the clients once they were sent all their lines."""
        self._counts.add("sources")
        try:
            await self._serve_until_its_end(stream)
        finally:
            self._counts.add("sources", -1)

    async def _serve_until_its_end(self, stream: Caller) -> None:
        logger.info("an event source connected", next=self._log.due)
        ends = self._router.ends
        try:
            await self._intake.read(stream)
        except (anyio.BrokenResourceError, OSError):
            logger.warning("lost the event source; it may connect again and continue", next=self._log.due)
            return
        while self._router.ends == ends:
            await anyio.sleep(POLL_S)
        await self._attendance.dismiss()
        logger.info("the event source ended")

    async def _drain(self) -> None:
        """End in this order: route the lines that are being stored, send them to the clients, put unsent lines into inboxes."""
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
