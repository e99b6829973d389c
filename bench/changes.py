"""C1, C2: measure the rate and the time from a write to MongoDB to its event, in a durable topic and at a subscriber."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
from pymongo import AsyncMongoClient, MongoClient

from bench.latency import Latencies
from bench.programs import folder, program
from bench.settings import BenchSettings
from demo.mongod import ReplicaSet
from tweetwire import Client, SyncClient

__all__ = ["INSERTS_PER_SECOND", "ChangeBacklog", "change_backlog", "insert_to_event"]

INSERTS_PER_SECOND: Final = 500
_DATABASE: Final = "bench"


class ChangeBacklog(NamedTuple):
    """Changes a second: of a loop that only reads them with pymongo, and of our publisher, up to the broker's synced log."""

    bare: float
    ours: float


class _Servers(NamedTuple):
    home: Path
    mongo_url: str
    broker: str

    @contextmanager
    def publisher(self) -> Iterator[None]:
        words = ("--mongo-url", self.mongo_url, "--broker", self.broker, "--database", _DATABASE)
        with program(
            self.home / "publisher.log", "change_stream", *words, "--map", "tweets=tweets", "--metrics-port", 0
        ):
            yield


@contextmanager
def _servers() -> Iterator[_Servers]:
    with folder() as home, ReplicaSet(home / "mongod") as replica_set:
        words = ("broker", "--port", 0, "--metrics-port", 0, "--data-dir", home / "broker")
        with program(home / "broker.log", *words) as (port, _):
            yield _Servers(home, replica_set.url, f"127.0.0.1:{port}")


def change_backlog(settings: BenchSettings) -> ChangeBacklog:
    """C1: time a bare loop and the publisher, as each reads a backlog of inserts of 250-byte documents.

    The publisher's rate is computed from the broker's times of the first and the last event, so that its start does not
    count. The bare loop's rate is computed from the times of its first and its last change.
    """
    count = max(2000, settings.events // 5)
    with _servers() as servers, MongoClient[dict[str, Any]](servers.mongo_url) as mongo:
        tweets = mongo[_DATABASE].tweets
        tweets.insert_one({"_id": "first"})
        with servers.publisher(), SyncClient(servers.broker) as client:
            tweets.insert_one(_document("second"))
            _wait_for(client, 1)
        with tweets.watch() as stream:
            while stream.resume_token is None:
                stream.try_next()
            token = stream.resume_token
        for first in range(0, count, 1000):
            tweets.insert_many([_document(str(n)) for n in range(first, min(count, first + 1000))])
        bare = _bare_loop(servers.mongo_url, token, count)
        with servers.publisher(), SyncClient(servers.broker) as client:
            _wait_for(client, count)
            began, ended = (
                client.read("tweets", offset, limit=1).events[0].timestamp
                for offset in (_next(client) - count, _next(client) - 1)
            )
        return ChangeBacklog(bare, count / max(ended - began, 1) * 1000)


def insert_to_event(settings: BenchSettings) -> Latencies:
    """C2: measure the time from an acknowledged insert to its event at a subscriber, with 500 inserts a second."""
    count = max(1000, settings.events // 100)
    with _servers() as servers, MongoClient[dict[str, Any]](servers.mongo_url) as mongo:
        mongo[_DATABASE].create_collection("tweets")
        with servers.publisher():
            return Latencies.of(anyio.run(_paced_inserts, servers, count, backend_options={"use_uvloop": True}))


async def _paced_inserts(servers: _Servers, count: int) -> list[float]:
    acknowledged: dict[str, float] = {}
    received: dict[str, float] = {}
    async with (
        AsyncMongoClient[dict[str, Any]](servers.mongo_url) as mongo,
        Client(servers.broker) as client,
        anyio.create_task_group() as tasks,
    ):
        tweets = mongo[_DATABASE].tweets
        subscription = await client.subscribe("tweets", create=True)

        async def insert(number: str) -> None:
            await tweets.insert_one(_document(number))
            acknowledged[number] = time.perf_counter()

        async def receive() -> None:
            async for batch in subscription:
                now = time.perf_counter()
                received.update((event.id, now) for event in batch)
                await subscription.ack(batch)
                if len(received) == count:
                    return

        tasks.start_soon(receive)
        began = time.perf_counter()
        for number in range(count):
            await anyio.sleep(max(0.0, began + number / INSERTS_PER_SECOND - time.perf_counter()))
            tasks.start_soon(insert, str(number))
    return [max(0.0, received[number] - acknowledged[number]) for number in received]


def _document(number: str) -> dict[str, Any]:
    return {"_id": number, "text": "x" * 150, "user": {"id_str": number[-3:], "followers_count": 5}}


def _bare_loop(url: str, token: Any, count: int) -> float:
    with MongoClient[dict[str, Any]](url) as mongo, mongo[_DATABASE].tweets.watch(start_after=token) as stream:
        next(stream)
        began = time.perf_counter()
        for _ in range(count - 1):
            next(stream)
        return (count - 1) / (time.perf_counter() - began)


def _next(client: SyncClient) -> int:
    return next((topic.next for topic in client.topics() if topic.topic == "tweets"), 0)


def _wait_for(client: SyncClient, count: int) -> None:
    deadline = time.monotonic() + 300
    while _next(client) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"only {_next(client)} of {count} changes came")
        time.sleep(0.1)
