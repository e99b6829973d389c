"""The program: connects to MongoDB and the broker, and relays each mapped collection to its topic."""

import time
from contextlib import AsyncExitStack
from typing import Any

import anyio
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure, PyMongoError

from broker import Client
from broker.errors import StartError
from broker.program import ready
from change_stream.backoff import Backoff
from change_stream.errors import WatchRefused, translate
from change_stream.relay import Relay
from change_stream.settings import Settings

__all__ = ["serve"]

_DRAIN_S = 10.0
_SELECTION_MS = 2000


async def serve(settings: Settings, stop: anyio.Event) -> None:
    """Relay until `stop` is set. Raises StartError or BrokerUnreachable where a server is missing at the start."""
    async with AsyncExitStack() as stack:
        mongo = await stack.enter_async_context(_mongo(settings.mongo_url))
        cluster = await _connect(mongo, settings.connect_timeout)
        client = await stack.enter_async_context(
            Client(settings.broker, name="change_stream", connect_timeout_s=settings.connect_timeout)
        )
        relays = [
            Relay(mongo[settings.database], client, settings, collection=collection, topic=topic, cluster=cluster)
            for collection, topic in settings.topics().items()
        ]
        async with anyio.create_task_group() as tasks:
            with anyio.move_on_after(settings.connect_timeout) as opening:
                for relay in relays:
                    await tasks.start(relay.run)
            if opening.cancelled_caught:
                raise StartError("MongoDB and the broker answer, but no change stream opens; see the warnings above")
            ready("change stream", f"{settings.database} ({', '.join(f'{r.collection} → {r.topic}' for r in relays)})")
            await stop.wait()
            # In order: no more is fetched; what was published is confirmed; the connections close behind it.
            for relay in relays:
                relay.stop()
            tasks.cancel_scope.deadline = anyio.current_time() + _DRAIN_S


def _mongo(url: str) -> AsyncMongoClient[dict[str, Any]]:
    try:
        return AsyncMongoClient(url, appname="tweetwire", serverSelectionTimeoutMS=_SELECTION_MS)
    except PyMongoError as error:
        raise StartError(f"--mongo-url cannot be used: {error}") from error


async def _connect(mongo: AsyncMongoClient[dict[str, Any]], timeout_s: float) -> str:
    """Wait until MongoDB answers; returns the cluster's id. Raises StartError after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    backoff = Backoff()
    while True:
        try:
            return await _cluster_id(mongo)
        except PyMongoError as error:
            failure = translate(error)
            if isinstance(failure, WatchRefused):
                raise failure from error
            if time.monotonic() > deadline:
                raise StartError(
                    f"no MongoDB answers at --mongo-url ({failure}); start one, or run: make demo"
                ) from error
        await anyio.sleep(backoff.pause_s())


async def _cluster_id(mongo: AsyncMongoClient[dict[str, Any]]) -> str:
    hello = await mongo.admin.command("hello")
    if hello.get("msg") == "isdbgrid":
        version = await mongo.config["version"].find_one()
        return str(version["clusterId"]) if version else "sharded"
    if "setName" not in hello:
        raise WatchRefused("change streams need a replica set; start mongod with --replSet, or run: make demo")
    try:
        config = await mongo.admin.command("replSetGetConfig")
    except OperationFailure:
        # Without the privilege clusterMonitor the set's name is all there is to know it by.
        return f"set-{hello['setName']}"
    return str(config["config"]["settings"]["replicaSetId"])
