"""The program: connects to the broker, and carries each route until it is stopped."""

import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TypeAlias

import anyio

from bridge.ends import destination_of, origin_of, partitions_of, registry_of
from bridge.heartbeat import advertised
from bridge.inward import Inward
from bridge.metrics import watch_presences, watch_routes
from bridge.outward import Outward
from bridge.partitions import InwardPartitions
from bridge.presence import Presence
from bridge.route import Route
from bridge.settings import BridgeSettings
from tweetwire import BrokerUnreachable, Client
from tweetwire.backoff import Backoff
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.login import Login
from tweetwire.runtime.program import logger, ready
from tweetwire.runtime.starting import ended_if_stopped

__all__ = ["connected", "serve"]

_DRAIN_S = 10.0

Carrier: TypeAlias = Inward | InwardPartitions | Outward


async def serve(settings: BridgeSettings, stop: anyio.Event) -> None:
    """Carry all routes until `stop` is set. Raises StartError if a person has to change something."""
    async with ended_if_stopped(stop) as is_ready, AsyncExitStack() as stack:
        client = await connected(settings.login(), "bridge", stack)
        carriers = [await _carrier(route, settings, client, stack) for route in settings.all_routes()]
        presences = _presences(settings, client)
        stack.enter_context(watch_routes([carrier.standing for carrier in carriers]))
        stack.enter_context(watch_presences(presences))
        is_ready.set()
        await _carry(carriers, presences, stop)


async def _carry(carriers: Sequence[Carrier], presences: Sequence[Presence], stop: anyio.Event) -> None:
    async with anyio.create_task_group() as tasks, anyio.create_task_group() as watching:
        for carrier in carriers:
            tasks.start_soon(carrier.run)
        for presence in presences:
            watching.start_soon(presence.run)
        ready("bridge", "; ".join(str(carrier.route) for carrier in carriers))
        await stop.wait()
        # Order: read no more, finish the writes and store the marks, then close the connections.
        for carrier in carriers:
            carrier.stop()
        watching.cancel_scope.cancel()
        tasks.cancel_scope.deadline = anyio.current_time() + _DRAIN_S


async def _carrier(route: Route, settings: BridgeSettings, client: Client, stack: AsyncExitStack) -> Carrier:
    identity = client.broker_identity
    if identity is None:
        raise StartError(f"the broker at {settings.broker} has no identity; the bridge needs a newer one")
    if route.direction == "in":
        partitions = partitions_of(route, settings, identity)
        if partitions is not None:
            return InwardPartitions(route, client, partitions)
        return Inward(route, client, origin_of(route, settings, identity))
    reader = await connected(settings.login(), f"bridge.{route.topic}"[:128], stack)
    destination = destination_of(route, settings, identity)
    return Outward(route, client, reader, destination, takes_new_identity=settings.new_identity)


def _presences(settings: BridgeSettings, client: Client) -> list[Presence]:
    """Return the presence of the broker at each engine of the routes."""
    if not settings.heartbeat:
        return []
    address = settings.advertise or advertised(settings.broker, socket.gethostname())
    routes = {route.centre: route for route in settings.all_routes()}
    found = ((centre, registry_of(route, settings)) for centre, route in routes.items())
    return [
        Presence(centre, registry, client, address, settings.heartbeat)
        for centre, registry in found
        if registry is not None
    ]


async def connected(login: Login, name: str, stack: AsyncExitStack) -> Client:
    """Return a client that is connected, and is closed with `stack`. Waits for the broker, after one warning."""
    backoff = Backoff()
    while True:
        try:
            return await stack.enter_async_context(login.client(name))
        except BrokerUnreachable as error:
            if not backoff.failures:
                logger().warning("broker unreachable, retrying", reason=str(error))
            await anyio.sleep(backoff.next_pause_s())
