"""When bridge, NATS and broker are killed under load, both directions still carry each event once and in order."""

import asyncio
import random
import re
from contextlib import suppress
from pathlib import Path

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.js.api import StorageType
from nats.js.errors import APIError

from tests.bridge.engines.jetstream_engine import JetStreamEngine
from tests.bridge.programs import Bridge, verified
from tests.bridge.test_kills import KILLS, Writers, kill_some
from tests.support.nats_servers import NatsServer
from tests.support.processes import BrokerProcess
from tests.support.stored import events_of
from tests.support.waiting import until


class NatsWriters(Writers):
    """Publishes to the broker, and to the subject `central` of NATS with nothing of the bridge."""

    def __init__(self, broker: BrokerProcess, server: NatsServer) -> None:
        super().__init__(broker, server)  # type: ignore[arg-type]
        self._address = f"nats://127.0.0.1:{server.port}"
        self._is_unsure = False

    def _add(self) -> None:
        asyncio.run(self._add_messages())

    async def _add_messages(self) -> None:
        while self._is_unsure or not self._is_stopped.is_set():
            with suppress(nats.errors.Error, OSError, asyncio.TimeoutError):
                client = await nats.connect(
                    self._address, allow_reconnect=False, max_reconnect_attempts=1, error_cb=_ignore
                )
                try:
                    await self._add_until_lost(client)
                finally:
                    await client.close()
            await asyncio.sleep(0.05)

    async def _add_until_lost(self, client: Client) -> None:
        context = client.jetstream(timeout=2)
        while self._is_unsure or not self._is_stopped.is_set():
            self._is_unsure = True
            try:
                await context.publish(
                    "central", str(self.added).encode(), headers={"Nats-Expected-Last-Sequence": str(self.added)}
                )
            except APIError as error:
                # The sequence shows whether the message is there, and only its reply was lost.
                last = re.search(r"wrong last sequence: (\d+)", str(error))
                if last is None or int(last[1]) != self.added + 1:
                    raise
            self.added += 1
            self._is_unsure = False
            await asyncio.sleep(0.002)


async def _ignore(_: Exception) -> None:
    """Servers are killed on purpose."""


@pytest.mark.stack
@pytest.mark.timeout(300 + KILLS * 15)
def test_every_event_is_carried_once_through_kills(tmp_path: Path, broker: BrokerProcess) -> None:
    with NatsServer(tmp_path / "nats") as server:
        orders, central = JetStreamEngine(server), JetStreamEngine(server, "CENTRAL")
        central.run(lambda context: context.add_stream(name="CENTRAL", subjects=["central"], storage=StorageType.FILE))
        address = f"nats://127.0.0.1:{server.port}"
        outward, inward = f"orders -> {address}/ORDERS?batch=100", f"{address}/CENTRAL?batch=100 -> taken"
        flags = ("--out", outward, "--in", inward, "--engine-timeout", "5s")
        writers = NatsWriters(broker, server)
        with Bridge(tmp_path / "bridge.log", broker.address, *flags) as bridge:
            with writers.running():
                kill_some([bridge, server, broker], KILLS, random.Random(KILLS))
            assert min(writers.published, writers.added) > 100
            until(lambda: len(orders.messages()) >= writers.published, 120, bridge.log, 0.5)
            until(lambda: len(events_of(broker.address, "taken")) >= writers.added, 120, bridge.log, 0.5)
            until(lambda: f"{writers.published} compared" in verified(broker.address, outward), 60, bridge.log, 0.5)
            assert f"{writers.added} compared" in verified(broker.address, inward)
            assert [message.headers["ce-id"] for message in orders.messages()] == [
                f"e{number}" for number in range(writers.published)
            ]
            assert [event.decode() for event in events_of(broker.address, "taken")] == list(range(writers.added))
            assert bridge.terminate() == 0
