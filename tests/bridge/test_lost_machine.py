"""When a broker is killed and its folder deleted, the engine has every event that was confirmed as replicated."""

import os
import random
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.bridge.engines.jetstream_engine import JetStreamEngine
from tests.bridge.programs import Bridge, entries
from tests.support.nats_servers import NatsServer
from tests.support.processes import BrokerProcess
from tests.support.redis_servers import RedisServer, find_server
from tests.support.waiting import until
from tweetwire import BrokerError, Event, Receipt, Refusal, SyncClient
from tweetwire.runtime.launching import ProgramProcess

ROUNDS = max(2, int(os.environ.get("TWEETWIRE_TEST_BRIDGE_KILLS", "10")) // 3)
PATIENCE_S = 100.0

pytestmark = [pytest.mark.stack, pytest.mark.timeout(120 + ROUNDS * 60)]


class Publisher:
    """Publishes events as fast as they are confirmed, until its broker is gone.

    Attributes:
        replicated: The ids of the events that were confirmed as replicated.
        lesser: The number of events that were confirmed with a lesser promise.
    """

    def __init__(self, address: str, name: str) -> None:
        self.replicated: list[str] = []
        self.lesser = 0
        self._address = address
        self._name = name
        self._sent = 0
        self._thread = threading.Thread(target=self._publish)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _publish(self) -> None:
        with suppress(BrokerError), SyncClient(self._address, name="writer", reconnect_s=0) as client:
            while True:
                batch = [Event(id=f"{self._name}-{self._sent + at}", msg={"n": at}) for at in range(50)]
                answered = self._note(self._sent)
                self._sent += len(batch)
                client.publish_many("orders", batch, answered=answered)

    def _note(self, first: int) -> Callable[[Receipt | Refusal], None]:
        at = first

        def note(answer: Receipt | Refusal) -> None:
            nonlocal at
            if not isinstance(answer, Receipt):
                return
            ids = [f"{self._name}-{number}" for number in range(at, at + answer.count)]
            at += answer.count
            if answer.durability == "replicated":
                self.replicated += ids
            else:
                self.lesser += len(ids)

        return note


def lose_machine(tmp_path: Path, name: str, centre: str, engine: ProgramProcess, chance: random.Random) -> list[str]:
    """Run a site under load, and lose it at a random moment. Return the ids that were confirmed as replicated."""
    folder = tmp_path / name
    route = f"orders -> {centre}?as=centre&batch=100"
    with (
        BrokerProcess(folder, "--topic", "orders") as broker,
        Bridge(tmp_path / f"{name}-bridge.log", broker.address, "--out", route) as bridge,
    ):
        with SyncClient(broker.address, name="admin") as client:
            client.confirm("orders", after="centre", within_s=15)
            until(lambda: client.marks("orders"), PATIENCE_S)
        publisher = Publisher(broker.address, name)
        publisher.start()
        until(lambda: publisher.replicated, PATIENCE_S)
        time.sleep(chance.uniform(0, 1.0))
        # Sometimes the engine is killed shortly before, so that confirmations wait for its return.
        if chance.random() < 0.3:
            engine.kill()
            time.sleep(chance.uniform(0, 0.2))
        for process in chance.sample([broker, bridge], 2):
            process.kill()
    publisher.join()
    shutil.rmtree(folder)
    if not engine.is_running:
        engine.start()
    return publisher.replicated


def check_lost_machines(tmp_path: Path, centre: str, engine: ProgramProcess, ids: Callable[[], list[str]]) -> None:
    chance = random.Random(centre.partition(":")[0])
    confirmed: list[str] = []
    for number in range(ROUNDS):
        confirmed += lose_machine(tmp_path, f"site{number}", centre, engine, chance)
        there = ids()
        assert not set(confirmed) - set(there), number
        assert len(there) == len(set(there))
    assert len(confirmed) >= 50 * ROUNDS


@pytest.mark.parametrize("name", ["redis", "valkey"])
def test_redis_has_what_was_confirmed_as_replicated(tmp_path: Path, name: str) -> None:
    with RedisServer(find_server(name), tmp_path / name) as server:
        check_lost_machines(
            tmp_path, server.url("orders"), server, lambda: [entry["ce_id"] for entry in entries(server, "orders")]
        )


def test_jetstream_has_what_was_confirmed_as_replicated(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats") as server:
        engine = JetStreamEngine(server)
        check_lost_machines(
            tmp_path,
            f"nats://127.0.0.1:{server.port}/ORDERS",
            server,
            lambda: [message.headers["ce-id"] for message in engine.messages()],
        )
