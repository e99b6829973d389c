"""The connections of the event source's clients, from their id to their end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import structlog
from anyio.abc import ByteStream

from broker.core import PartCounts
from broker.gateways.event_source.clients import Client, Clients
from broker.gateways.event_source.inboxes import Inboxes
from broker.gateways.event_source.router import Router
from tweetwire.runtime.listening import is_descriptor_shortage

__all__ = ["Attendance"]

POLL_S: Final = 0.01
READ_BYTES: Final = 4096

logger = structlog.stdlib.get_logger()


class _Presence:
    """One connection of a client, from when the client has sent its id until the connection has ended."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.is_gone = anyio.Event()


class Attendance:
    """Serves each client: first the lines of its inbox, then new lines. A second connection with the same id ends the first."""

    def __init__(
        self,
        clients: Clients,
        router: Router,
        inboxes: Inboxes | None,
        *,
        counts: PartCounts,
        stalled_after_s: float,
    ) -> None:
        self._clients = clients
        self._router = router
        self._inboxes = inboxes
        self._counts = counts
        self._stalled_after_s = stalled_after_s
        self._present: dict[bytes, _Presence] = {}
        self._lacks_descriptors = False

    async def serve(self, id_: bytes, stream: ByteStream) -> None:
        """Serve one client until it leaves, stops reading, or is dismissed."""
        async with self._present_as(id_):
            if self._inboxes is not None and not await self._catch_up(self._inboxes, id_, stream):
                self._note_cut_off(id_)
                return
            # There is no await after the inbox was found empty. So the client misses no line that is routed from now on.
            client = self._clients.by_id[id_] = self._connect(id_, stream)
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_cancel_at_end, stream, tasks.cancel_scope)
                    await client.send_all(self._stalled_after_s)
                    tasks.cancel_scope.cancel()
            finally:
                del self._clients.by_id[id_]
                client.close()
                if self._inboxes is not None:
                    self._inboxes.put_back(id_, self._router.offset - 1, client.unsent())
            if client.is_cut_off:
                self._note_cut_off(id_)

    async def dismiss(self) -> None:
        """Close the clients that are connected now, each once it was sent all its lines."""
        leaving = dict(self._present)
        while leaving:
            for id_, presence in list(leaving.items()):
                if presence.is_gone.is_set():
                    del leaving[id_]
                elif id_ in self._clients.by_id:
                    self._clients.by_id[id_].end()
            await anyio.sleep(POLL_S)

    async def cut_off_all(self) -> None:
        """Close all connected clients immediately, also those with unsent lines."""
        for presence in list(self._present.values()):
            presence.scope.cancel()
            await presence.is_gone.wait()

    def _connect(self, id_: bytes, stream: ByteStream) -> Client:
        """Return the client of a new connection. Raises OSError if the process has no descriptor left for it."""
        try:
            client = Client(id_, stream)
        except OSError as error:
            # Log once per shortage: thousands of closed clients may connect again at the same time.
            if is_descriptor_shortage(error) and not self._lacks_descriptors:
                self._lacks_descriptors = True
                logger.warning(
                    "no file descriptors are left; closing new clients of the event source. Raise the limit (ulimit -n)",
                    client=id_.decode(),
                    reason=error.strerror,
                )
            raise
        self._lacks_descriptors = False
        return client

    async def _catch_up(self, inboxes: Inboxes, id_: bytes, stream: ByteStream) -> bool:
        self._router.arriving.add(id_)
        try:
            return await inboxes.catch_up(id_, stream, self._stalled_after_s)
        finally:
            self._router.arriving.discard(id_)

    @asynccontextmanager
    async def _present_as(self, id_: bytes) -> AsyncIterator[None]:
        while (before := self._present.get(id_)) is not None:
            before.scope.cancel()
            await before.is_gone.wait()
        presence = self._present[id_] = _Presence()
        self._counts.set_to("clients", len(self._present))
        try:
            with presence.scope:
                yield
        finally:
            del self._present[id_]
            presence.is_gone.set()
            self._counts.set_to("clients", len(self._present))

    def _note_cut_off(self, id_: bytes) -> None:
        self._counts.add("cut_off")
        logger.warning("a client of the event source does not read; disconnected", client=id_.decode())


async def _cancel_at_end(stream: ByteStream, scope: anyio.CancelScope) -> None:
    """Cancel `scope` when the client leaves. The bytes that the client sends have no meaning and are dropped."""
    try:
        while True:
            await stream.receive(READ_BYTES)
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        scope.cancel()
