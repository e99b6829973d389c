"""The program: connects to MongoDB and the broker, and relays each mapped collection to its topic."""

import os
import re
import socket
from contextlib import AsyncExitStack

import anyio

from change_stream.cluster import Cluster
from change_stream.headroom import Headroom
from change_stream.metrics import watch_relays
from change_stream.relay import Relay
from change_stream.settings import ChangeStreamSettings
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.program import ready
from tweetwire.runtime.starting import ended_if_stopped

__all__ = ["serve"]

_DRAIN_S = 10.0


async def serve(settings: ChangeStreamSettings, stop: anyio.Event) -> None:
    """Relay until `stop` is set. Raises StartError or BrokerUnreachable if a server is missing at the start."""
    async with ended_if_stopped(stop) as is_ready:
        await _relay_all(settings, stop, is_ready)


async def _relay_all(settings: ChangeStreamSettings, stop: anyio.Event, is_ready: anyio.Event) -> None:
    async with AsyncExitStack() as stack:
        cluster = Cluster.at(settings.mongo_url)
        mongo = await stack.enter_async_context(cluster.mongo)
        await cluster.connect(settings.connect_timeout)
        client = await stack.enter_async_context(
            settings.login().client(_client_name(), connect_timeout_s=settings.connect_timeout)
        )
        relays = [
            Relay(cluster, mongo[settings.database], client, settings, collection=collection, topic=topic)
            for collection, topic in settings.topics().items()
        ]
        headroom = Headroom(cluster, relays)
        stack.enter_context(watch_relays(relays, headroom))
        async with anyio.create_task_group() as tasks:
            watching = anyio.CancelScope()
            tasks.start_soon(_watch, headroom, watching)
            for relay in relays:
                tasks.start_soon(relay.run)
            with anyio.move_on_after(settings.connect_timeout) as opening:
                for relay in relays:
                    await relay.is_open.wait()
            if opening.cancelled_caught:
                raise StartError("MongoDB and the broker answer, but no change stream opens; see the warnings above")
            is_ready.set()
            ready("change stream", f"{settings.database} ({', '.join(f'{r.collection} → {r.topic}' for r in relays)})")
            await _stopped_or_ended(stop, relays)
            watching.cancel()
            # Order: stop fetching, wait for the confirmation of published events, then close the connections.
            for relay in relays:
                relay.stop()
            tasks.cancel_scope.deadline = anyio.current_time() + _DRAIN_S


async def _watch(headroom: Headroom, scope: anyio.CancelScope) -> None:
    with scope:
        await headroom.watch()


async def _stopped_or_ended(stop: anyio.Event, relays: list[Relay]) -> None:
    """Wait for `stop`, or until each relay has ended by itself after its snapshot."""

    async def wait_for_all() -> None:
        for relay in relays:
            await relay.has_ended.wait()
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_for_all)
        await stop.wait()
        tasks.cancel_scope.cancel()


def _client_name() -> str:
    """Return the name of this process at the broker, by which a standby names the leader."""
    host = re.sub(r"[^A-Za-z0-9_-]", "_", socket.gethostname())[:80]
    return f"change_stream-{host}-{os.getpid()}"
