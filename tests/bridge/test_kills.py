"""When bridge, Redis and broker are killed under load, both directions still carry each event once and in order."""

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import redis

from tests.bridge.programs import Bridge, entries, verified
from tests.support.processes import BrokerProcess
from tests.support.redis_servers import RedisServer, find_server
from tests.support.stored import events_of
from tests.support.waiting import until
from tweetwire import BrokerError, Event, SyncClient
from tweetwire.runtime.launching import ProgramProcess

KILLS = int(os.environ.get("TWEETWIRE_TEST_BRIDGE_KILLS", "10"))


class Writers:
    """Publishes to the broker and adds to a central stream, at the same time, until stopped. Each event is written once.

    A write whose reply was lost is repeated before the end, since it may have been carried out.

    Attributes:
        published: The number of events of the topic `orders`.
        added: The number of entries of the stream `central`.
    """

    def __init__(self, broker: BrokerProcess, server: RedisServer) -> None:
        self.published = 0
        self.added = 0
        self._broker = broker
        self._server = server
        self._is_stopped = threading.Event()
        self._threads = [threading.Thread(target=self._publish), threading.Thread(target=self._add)]

    @contextmanager
    def running(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._is_stopped.set()
            for thread in self._threads:
                thread.join()

    def _publish(self) -> None:
        is_unsure = False
        while is_unsure or not self._is_stopped.is_set():
            with suppress(BrokerError), SyncClient(self._broker.address, name="writer", reconnect_s=0) as client:
                while is_unsure or not self._is_stopped.is_set():
                    is_unsure = True
                    first = self.published
                    # The sequence makes the repetition after a lost connection harmless.
                    batch = [
                        Event(id=f"e{number}", msg={"n": number}, producer="writer", sequence=number)
                        for number in range(first, first + 20)
                    ]
                    client.publish_many("orders", batch)
                    self.published = first + 20
                    is_unsure = False
                    time.sleep(0.01)

    def _add(self) -> None:
        client = self._server.client()
        is_unsure = False
        while is_unsure or not self._is_stopped.is_set():
            is_unsure = True
            try:
                client.xadd("central", {"data": str(self.added)}, id=f"{self.added + 1}-0")
            except redis.exceptions.ResponseError as error:
                # The id shows that the entry is there, and only its reply was lost.
                if "equal or smaller" not in str(error):
                    time.sleep(0.05)
                    continue
            except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
                time.sleep(0.05)
                continue
            self.added += 1
            is_unsure = False
            time.sleep(0.002)
        client.close()


def kill_some(processes: list[ProgramProcess], kills: int, chance: random.Random) -> None:
    """Kill and start again one process after the other, chosen by chance."""
    for _ in range(kills):
        time.sleep(chance.uniform(0.05, 1.0))
        process = chance.choice(processes)
        process.kill()
        if isinstance(process, Bridge):
            process.launch()  # it may be killed again before it is ready
        else:
            process.start()


@pytest.mark.stack
@pytest.mark.timeout(240 + KILLS * 15)
@pytest.mark.parametrize("name", ["redis", "valkey"])
def test_every_event_is_carried_once_through_kills(tmp_path: Path, broker: BrokerProcess, name: str) -> None:
    with RedisServer(find_server(name), tmp_path / name) as server:
        outward = f"orders -> {server.url('orders')}?batch=100"
        inward = f"{server.url('central')}?batch=100 -> taken"
        flags = ("--out", outward, "--in", inward, "--engine-timeout", "5s")
        writers = Writers(broker, server)
        with Bridge(tmp_path / "bridge.log", broker.address, *flags) as bridge:
            with writers.running():
                kill_some([bridge, server, broker], -(-KILLS // 2), random.Random(f"{name}{KILLS}"))
            assert min(writers.published, writers.added) > 100
            until(lambda: len(entries(server, "orders")) >= writers.published, 120, bridge.log, 0.5)
            until(lambda: len(events_of(broker.address, "taken")) >= writers.added, 120, bridge.log, 0.5)
            until(lambda: f"{writers.published} compared" in verified(broker.address, outward), 60, bridge.log, 0.5)
            assert f"{writers.added} compared" in verified(broker.address, inward)
            assert [entry["ce_id"] for entry in entries(server, "orders")] == [
                f"e{number}" for number in range(writers.published)
            ]
            assert [event.decode() for event in events_of(broker.address, "taken")] == list(range(writers.added))
            assert bridge.terminate() == 0
