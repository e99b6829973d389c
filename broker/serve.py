"""Serving: the data directory opened, the listener started, and the order in which all of it ends."""

import resource
import sys
from contextlib import AsyncExitStack
from typing import Any, Final

import anyio
from anyio.abc import Listener, SocketAttribute

from broker import metrics
from broker.connection import Limits
from broker.data_directory import Sizes
from broker.errors import Refusal, StartError
from broker.gateways import EventSource, EventSourceOptions
from broker.listening import serve_patiently
from broker.program import logger, port_taken, ready
from broker.protocol import check_name
from broker.server import Server
from broker.settings import BrokerSettings
from broker.tls import TlsDoor, server_context
from broker.users import UsersFile

__all__ = ["serve"]

# A thread that comes back from the disk waits so long, at most, for the busy event loop to let go of the interpreter; with
# Python's 5 ms, each write, sync and read costs that much in latency.
SWITCH_INTERVAL_S: Final = 0.0002


async def serve(settings: BrokerSettings, stop: anyio.Event) -> None:
    """Open the data directory, listen, and end in order: no new connections, then the drain, then the files."""
    topics = _topics(settings)
    users = None if settings.users is None else UsersFile(settings.users)
    if users is None and settings.host not in {"127.0.0.1", "::1", "localhost"}:
        logger().warning("listening beyond this machine without users: anybody who reaches the port can read and write")
    _allow_open_files()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    async with AsyncExitStack() as stack:
        plain = await stack.enter_async_context(await _listen(settings))
        address = f"{settings.host}:{plain.extra(SocketAttribute.local_port)}"
        listener = _with_tls(plain, settings)
        server = Server(
            settings.data_dir,
            settings.durability,
            limits=Limits(settings.line_bytes_max, settings.waiting_bytes_max, settings.stalled_after),
            connections_max=settings.connections_max,
            recent_bytes=settings.recent_bytes,
            sizes=Sizes(settings.segment_bytes, settings.reserve_bytes),
            users=users,
        )
        await stack.enter_async_context(server.open(topics))
        await stack.enter_async_context(metrics.watch(server))
        if settings.event_source:
            await stack.enter_async_context(EventSource(server, _event_source(settings)).open())
        async with anyio.create_task_group() as connections:
            async with anyio.create_task_group() as accepting:
                accepting.start_soon(serve_patiently, listener, server.handle, connections)
                ready("broker", address)
                await stop.wait()
                accepting.cancel_scope.cancel()
            # Not within what is cancelled, where it could not wait for anybody.
            await server.drain()
            # Who is still on the way to a connection, as in a TLS handshake, would be waited for.
            connections.cancel_scope.cancel()


def _allow_open_files() -> None:
    """Take as many open files as the system gives; its usual 1,024 would be the limit of connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _topics(settings: BrokerSettings) -> list[str]:
    try:
        return [check_name(name) for name in settings.topic]
    except Refusal as refusal:
        raise StartError(f"--topic: {refusal.text}") from refusal


def _event_source(settings: BrokerSettings) -> EventSourceOptions:
    return EventSourceOptions(
        settings.host,
        settings.event_source_port,
        settings.event_source_client_port,
        settings.hold_max,
        settings.connections_max,
        settings.stalled_after,
        has_inboxes=settings.event_source_inbox,
        goes_on=settings.event_source_goes_on,
    )


async def _listen(settings: BrokerSettings) -> Listener[Any]:
    try:
        return await anyio.create_tcp_listener(local_host=settings.host, local_port=settings.port)
    except OSError as error:
        raise port_taken(error, settings.host, settings.port, "--port") from error


def _with_tls(listener: Listener[Any], settings: BrokerSettings) -> Listener[Any]:
    if settings.tls_cert is None or settings.tls_key is None:
        return listener
    context = server_context(settings.tls_cert, settings.tls_key, settings.tls_ca)
    return TlsDoor(listener, context, standard_compatible=False)
