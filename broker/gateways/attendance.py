"""The event source's clients as they come and go."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import structlog
from anyio.abc import ByteStream

from broker.gateways.inboxes import Inboxes
from broker.gateways.source_clients import Client, Clients
from broker.gateways.source_router import Router
from broker.listening import is_want_of_descriptors

__all__ = ["Attendance"]

POLL_S: Final = 0.01
READ_BYTES: Final = 4096

logger = structlog.stdlib.get_logger()


class _Presence:
    """One connection of somebody, from when it is let in until it is gone."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.is_gone = anyio.Event()


class Attendance:
    """Serves each client: first what its inbox has, then what comes. A newer connection of one id ends the older."""

    def __init__(
        self,
        clients: Clients,
        router: Router,
        inboxes: Inboxes | None,
        *,
        counts: dict[str, int],
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
        """Serve one client until it leaves, does not read, or is dismissed."""
        async with self._present_as(id_):
            if self._inboxes is not None and not await self._catch_up(self._inboxes, id_, stream):
                self._note_cut_off(id_)
                return
            # No await since the inbox was found empty: what is routed from now on comes to the client itself.
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
        """Close those who are here now, each when it has got everything."""
        leaving = dict(self._present)
        while leaving:
            for id_, presence in list(leaving.items()):
                if presence.is_gone.is_set():
                    del leaving[id_]
                elif id_ in self._clients.by_id:
                    self._clients.by_id[id_].end()
            await anyio.sleep(POLL_S)

    async def cut_off_all(self) -> None:
        """Close those who are here, whatever they have got."""
        for presence in list(self._present.values()):
            presence.scope.cancel()
            await presence.is_gone.wait()

    def _connect(self, id_: bytes, stream: ByteStream) -> Client:
        """Raises OSError, which ends the connection, where the system has no descriptor for it."""
        try:
            client = Client(id_, stream)
        except OSError as error:
            # Once for all who are closed until there are some again: they come back at once, and by the thousand.
            if is_want_of_descriptors(error) and not self._lacks_descriptors:
                self._lacks_descriptors = True
                logger.warning(
                    "no file descriptors are left; clients of the event source are closed. Raise the limit (ulimit -n)",
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
        self._counts["event_source_clients"] = len(self._present)
        try:
            with presence.scope:
                yield
        finally:
            del self._present[id_]
            presence.is_gone.set()
            self._counts["event_source_clients"] = len(self._present)

    def _note_cut_off(self, id_: bytes) -> None:
        self._counts["event_source_cut_off"] += 1
        logger.warning("a client of the event source takes nothing and is cut off", client=id_.decode())


async def _cancel_at_end(stream: ByteStream, scope: anyio.CancelScope) -> None:
    """Read, so that a client that leaves is noticed; what it says is of no meaning."""
    try:
        while True:
            await stream.receive(READ_BYTES)
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        scope.cancel()
