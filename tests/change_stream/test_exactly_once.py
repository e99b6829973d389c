"""When processes die under load, the topic still has every change once and in order."""

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.errors import PyMongoError

from demo.mongod import ReplicaSet
from tests.change_stream.programs import Publisher, applied, now_token, tokens_of, tokens_since, wait_for
from tests.support.processes import BrokerProcess

COLLECTIONS = ("tweets", "users")
KILLS_EACH = int(os.environ.get("TWEETWIRE_FAULT_ROUNDS", "15")) // 3


class Writers:
    """Threads that insert, update, replace and delete until they are stopped. They do not retry failed writes."""

    def __init__(self, url: str, database: str) -> None:
        self._client: MongoClient[dict[str, Any]] = MongoClient(url, serverSelectionTimeoutMS=500)
        self._is_stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(self._client[database][name], seed))
            for seed, name in enumerate(COLLECTIONS)
        ]

    def __enter__(self) -> "Writers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        for thread in self._threads:
            thread.join()
        self._client.close()

    def _write(self, collection: Collection[dict[str, Any]], seed: int) -> None:
        chance = random.Random(seed)
        while not self._is_stopped.is_set():
            with suppress(PyMongoError):
                self._write_one(collection, chance)
            time.sleep(0.001)

    def _write_one(self, collection: Collection[dict[str, Any]], chance: random.Random) -> None:
        document = {"_id": str(chance.randrange(200)), "n": chance.random(), "user": {"followers_count": 5}}
        which = {"_id": document["_id"]}
        kind = chance.random()
        if kind < 0.4:
            collection.insert_one(document)
        elif kind < 0.6:
            collection.update_one(which, {"$set": {"n": chance.random(), "user.x": 1}, "$unset": {"y": ""}})
        elif kind < 0.8:
            collection.replace_one(which, {"n": chance.random(), "y": 1, "user": {}}, upsert=True)
        else:
            collection.delete_one(which)


@pytest.fixture
def replica_set(tmp_path: Path) -> Iterator[ReplicaSet]:
    with ReplicaSet(tmp_path / "mongo") as running:
        yield running


class Killers:
    """Kills and restarts each process of `processes` `kills` times. Each process has a separate thread for this."""

    def __init__(self, processes: list[BrokerProcess | Publisher | ReplicaSet], kills: int) -> None:
        self._kills = kills
        self._failures: list[Exception] = []
        self._threads = [
            threading.Thread(target=self._kill, args=(process, random.Random(seed)))
            for seed, process in enumerate(processes)
        ]

    def run(self) -> None:
        """Run until all kills are done. Raises the error of a process that did not start."""
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _kill(self, process: BrokerProcess | Publisher | ReplicaSet, chance: random.Random) -> None:
        try:
            for _ in range(self._kills):
                time.sleep(chance.uniform(0.1, 1.5))
                process.kill()
                if isinstance(process, Publisher):
                    process.launch()  # it may be killed again before it is ready
                else:
                    process.start()
        except Exception as failure:  # noqa: BLE001 — raised again by `run`, in the test's own thread
            self._failures.append(failure)


@pytest.mark.stack
@pytest.mark.timeout(120 + KILLS_EACH * 10)
def test_every_change_is_in_the_topic_once_and_in_order(
    tmp_path: Path, broker: BrokerProcess, replica_set: ReplicaSet
) -> None:
    with MongoClient[dict[str, Any]](replica_set.url) as mongo:
        database = mongo.chaos
        starts = {name: now_token(database[name]) for name in COLLECTIONS}
        flags = ("--connect-timeout", "2m")
        with Publisher(tmp_path / "publisher.log", replica_set.url, broker.address, "chaos", *flags) as publisher:
            with Writers(replica_set.url, "chaos"):
                Killers([publisher, broker, replica_set], KILLS_EACH).run()
            for name in COLLECTIONS:
                expected = tokens_since(database[name], starts[name])
                assert len(expected) > 100
                events = wait_for(broker.address, name, len(expected), 30)
                assert tokens_of(events) == expected
                assert [event.sequence for event in events] == list(range(1, len(events) + 1))
                assert applied(events) == {document["_id"]: document for document in database[name].find()}
            assert publisher.terminate() == 0
