"""Serve a broker: open the data directory, listen, and shut down in order."""

import resource
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import SocketAttribute

from broker import metrics
from broker.connection import Limits
from broker.data_directory import Sizes, connections_room, open_files_max
from broker.garbage import collect_when_due
from broker.gateways import EventSource, EventSourceOptions
from broker.server import Server
from broker.settings import BrokerSettings
from broker.tiers.options import TierOptions
from broker.tls import TlsDoor, server_context
from broker.users import UsersFile
from tweetwire.protocol import check_name
from tweetwire.protocol.errors import Refusal, StartError
from tweetwire.runtime.admission import STRANGERS_MAX, AdmissionLimits
from tweetwire.runtime.extras import needs_extra
from tweetwire.runtime.listening import accept_forever, listen
from tweetwire.runtime.program import logger, ready
from tweetwire.runtime.signals import reloading

if TYPE_CHECKING:
    from broker.gateways.http import HttpGateway

__all__ = ["serve"]

# A thread that returns from the disk waits at most this long for the busy event loop to release the interpreter. Python's
# default of 5 ms would add that latency to each write, sync and read.
SWITCH_INTERVAL_S: Final = 0.0002
LOGIN_S: Final = 10.0
FIRST_COMMAND_S: Final = 60.0
TLS_STRANGERS: Final = 1000
"""The most connections before a login if TLS is on, since a TLS handshake takes about 50 KB of memory."""


async def serve(settings: BrokerSettings, stop: anyio.Event) -> None:
    """Open the data directory and listen until `stop` is set. Then shut down in order: listener, connections, files."""
    topics = _topics(settings)
    users = None if settings.users is None else UsersFile(settings.users)
    if users is None and settings.host not in {"127.0.0.1", "::1", "localhost"}:
        logger().warning(
            "listening beyond this machine without users: every client that reaches the port can read and write; pass --users"
        )
    _allow_open_files()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    async with AsyncExitStack() as stack:
        listener = await stack.enter_async_context(await listen(settings.host, settings.port, "--port"))
        address = f"{settings.host}:{listener.extra(SocketAttribute.local_port)}"
        door = _tls_door(settings)
        server = Server(
            settings.data_dir,
            settings.durability,
            limits=_limits(settings),
            admission=_admission(settings),
            recent_bytes=settings.recent_bytes,
            sizes=Sizes(settings.segment_bytes, settings.reserve_bytes),
            users=users,
            secure=None if door is None else door.shake_hands,
            makes_unknown=settings.create_topics,
        )
        await stack.enter_async_context(server.open(topics))
        await stack.enter_async_context(metrics.watch(server))
        await stack.enter_async_context(_tier(settings, server))
        if settings.event_source:
            await stack.enter_async_context(EventSource(server, _event_source(settings)).open())
        if settings.http_port is not None:
            await stack.enter_async_context(_http_gateway(settings, settings.http_port, server, door).open())
        stack.enter_context(reloading(partial(_reload, settings, server, door)))
        async with anyio.create_task_group() as connections:
            async with anyio.create_task_group() as accepting:
                accepting.start_soon(collect_when_due, lambda: len(server.broker.sessions))
                accepting.start_soon(accept_forever, listener, server.handle, connections)
                ready("broker", address)
                await stop.wait()
                accepting.cancel_scope.cancel()
            # Drain outside the cancelled task group, since nothing can be awaited within it.
            await server.drain()
            # Cancel the connections that are not served yet, for example in a TLS handshake. The drain does not end them.
            connections.cancel_scope.cancel()


def _reload(settings: BrokerSettings, server: Server, door: TlsDoor | None) -> None:
    """Read the users and the certificate again. Raises StartError if a file is unusable, and then changes nothing."""
    users = None if settings.users is None else UsersFile(settings.users)
    fresh = _tls_door(settings)
    if users is not None:
        server.replace_users(users)
    if door is not None and fresh is not None:
        door.context = fresh.context


def _allow_open_files() -> None:
    """Raise the limit of open files as far as the system allows. The usual 1,024 would limit the connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS reports an infinite hard limit, but refuses to raise the soft limit that far.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _connections_max(settings: BrokerSettings) -> int:
    """Return how many connections may be open, so that descriptors are left for the files."""
    room = connections_room()
    if settings.connections_max > room:
        logger().warning(
            "allowing fewer connections than --connections-max: each needs a file descriptor; raise the limit (ulimit -n)",
            connections=room,
            descriptors=open_files_max(),
        )
    return min(settings.connections_max, room)


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
        silence_s=settings.event_source_silence,
        clients_per_address=settings.connections_per_address,
    )


def _tier(settings: BrokerSettings, server: Server) -> AbstractAsyncContextManager[None]:
    """Return the tier as a block, which does nothing without ``--tier``. Raises StartError for an unusable URL."""
    if settings.tier is None:
        return nullcontext()
    with needs_extra("--tier", "tiers"):
        from broker.tiers.service import Tier  # noqa: PLC0415 — the packages of an extra, which few brokers need
    options = TierOptions(settings.tier, settings.tier_after, settings.tier_verify, settings.tier_fence)
    return Tier(server, options).open()


def _http_gateway(settings: BrokerSettings, port: int, server: Server, door: TlsDoor | None) -> "HttpGateway":
    """Return the HTTP gateway."""
    with needs_extra("--http-port", "http"):
        from broker.gateways.http import HttpGateway, HttpOptions  # noqa: PLC0415 — most brokers do without its packages
    names = {"localhost", settings.host.lower(), *(name.lower() for name in settings.http_allowed_host)}
    options = HttpOptions(
        settings.host,
        port,
        promise=settings.durability,
        limits=_limits(settings),
        admission=_admission(settings),
        names=frozenset(names),
        origins=frozenset(settings.http_allow_origin),
        body_bytes_max=settings.http_body_bytes_max,
        context=lambda: None if door is None else door.context,
    )
    return HttpGateway(server, options)


def _limits(settings: BrokerSettings) -> Limits:
    return Limits(settings.line_bytes_max, settings.waiting_bytes_max, settings.stalled_after)


def _tls_door(settings: BrokerSettings) -> TlsDoor | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return TlsDoor(server_context(settings.tls_cert, settings.tls_key, settings.tls_ca))


def _admission(settings: BrokerSettings) -> AdmissionLimits:
    patience_s = settings.greeting_timeout
    if patience_s is None:
        patience_s = LOGIN_S if settings.users is not None else FIRST_COMMAND_S
    strangers = STRANGERS_MAX if settings.tls_cert is None else TLS_STRANGERS
    return AdmissionLimits(_connections_max(settings), patience_s, settings.connections_per_address, strangers)
