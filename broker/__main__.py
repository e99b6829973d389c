"""``python -m broker``: serves until SIGINT or SIGTERM, then drains and ends with status 0."""

import sys
from contextlib import AsyncExitStack

import anyio
from anyio.abc import SocketAttribute

from broker.errors import Refusal, StartError
from broker.program import logger, port_taken, ready, run
from broker.protocol import check_name
from broker.server import Server
from broker.settings import BrokerSettings


async def serve(settings: BrokerSettings, stop: anyio.Event) -> None:
    """Open the data directory, listen, and end in order: no new connections, then the drain, then the files."""
    try:
        topics = [check_name(name) for name in settings.topic]
    except Refusal as refusal:
        raise StartError(f"--topic: {refusal.text}") from refusal
    if settings.host not in {"127.0.0.1", "::1", "localhost"}:
        logger().warning("listening beyond this machine without users: anybody who reaches the port can read and write")
    async with AsyncExitStack() as stack:
        try:
            listener = await stack.enter_async_context(
                await anyio.create_tcp_listener(local_host=settings.host, local_port=settings.port)
            )
        except OSError as error:
            raise port_taken(error, settings.host, settings.port, "--port") from error
        server = Server(settings.data_dir, settings.durability, settings.line_bytes_max)
        await stack.enter_async_context(server.open(topics))
        async with anyio.create_task_group() as connections, anyio.create_task_group() as accepting:
            accepting.start_soon(listener.serve, server.handle, connections)
            ready("broker", f"{settings.host}:{listener.extra(SocketAttribute.local_port)}")
            await stop.wait()
            accepting.cancel_scope.cancel()
            await server.drain()


if __name__ == "__main__":
    sys.exit(run(BrokerSettings, serve))
