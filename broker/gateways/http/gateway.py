"""The HTTP gateway of one server: its port, its routes, its holders, and its shutdown."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import structlog

from broker.gateways.http.application import Application
from broker.gateways.http.door import Door
from broker.gateways.http.holders import Holders
from broker.gateways.http.options import HttpOptions
from broker.gateways.http.table import routes_of
from broker.server import Server

__all__ = ["HttpGateway"]

COUNTS: Final = ("connections", "requests", "refused", "stalled", "holders")
SWEEP_S: Final = 1.0

logger = structlog.stdlib.get_logger()


class HttpGateway:
    """Serves HTTP beside the line protocol. The server must be open."""

    def __init__(self, server: Server, options: HttpOptions) -> None:
        self._server = server
        self._options = options
        self._counts = server.broker.counts_of("http", COUNTS)
        self._holders = Holders(server)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Serve until the end of the block. Raises StartError if the port is in use."""
        application = Application(self._server, self._options, routes_of(self._holders), self._counts)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._sweep)
            async with Door(self._options, self._counts, application.serve).open() as address:
                logger.info("HTTP gateway is listening", on=address)
                yield
                self._holders.leave()
            # No request is served any more. The events in flight go back without a failed try.
            self._holders.close()
            tasks.cancel_scope.cancel()

    async def _sweep(self) -> None:
        while True:
            await anyio.sleep(SWEEP_S)
            self._holders.end_idle()
            self._counts.set_to("holders", len(self._holders))
