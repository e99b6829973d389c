"""The reply to an append is cut at every byte: the event is in the stream once."""

import hashlib

import pytest

from bridge.engines.redis import RedisDestination
from bridge.engines.redis_link import RedisLogin
from bridge.engines.redis_scripts import APPEND
from tests.bridge.carrying import running_out, until_marked
from tests.bridge.programs import entries
from tests.support.cutting_proxy import CuttingProxy
from tests.support.processes import BrokerProcess
from tests.support.redis_servers import RedisServer
from tweetwire import Client, Event

pytestmark = [pytest.mark.anyio, pytest.mark.stack, pytest.mark.timeout(240)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_reply_that_is_cut_at_any_byte_neither_loses_nor_doubles(
    broker: BrokerProcess, server: RedisServer
) -> None:
    digest = hashlib.sha1(APPEND.encode(), usedforsecurity=False).hexdigest().encode()
    async with Client(broker.address, name="test") as client, CuttingProxy(server.port, digest) as proxy:
        destination = RedisDestination(RedisLogin("127.0.0.1", proxy.port), "orders", "orders")
        await client.publish("orders", Event(id="e0", msg=0))
        async with running_out(broker.address, destination) as outward:
            await until_marked(client, 1)
            await client.publish("orders", Event(id="e1", msg=1))
            await until_marked(client, 2)
            lengths = proxy.longest + 1
            assert lengths > 50
            for cut in range(lengths):
                proxy.cut_at = cut
                await client.publish("orders", Event(id=f"e{cut + 2}", msg=cut))
                await until_marked(client, cut + 3)
            assert proxy.cuts == lengths
            # In the last round the whole reply arrives before the connection is cut, so that round may be a success.
            assert outward.standing.failures >= lengths - 1
    assert [entry["ce_id"] for entry in entries(server, "orders")] == [f"e{number}" for number in range(lengths + 2)]
