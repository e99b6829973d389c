"""If several tasks of a client wait for the same event, all of them continue when it arrives."""

import anyio
import anyio.lowlevel
import pytest

from tests.support.processes import BrokerProcess
from tweetwire import Client, Event

pytestmark = pytest.mark.anyio

WITHIN_S = 10.0


@pytest.mark.parametrize("waits", ["room in the queue", "the publisher's window", "the end of a subscription"])
async def test_all_tasks_that_wait_for_the_same_event_continue(shared_broker: BrokerProcess, waits: str) -> None:
    async with Client(shared_broker.address) as client:
        ended: list[int] = []
        subscription = await client.subscribe("t", create=True)
        async with client.publisher("u", window=1) as publisher:

            async def wait(number: int) -> None:
                if waits == "room in the queue":
                    await client._link.wait_for_room()
                elif waits == "the publisher's window":
                    await publisher.publish(Event(id=str(number), msg=number))
                else:
                    async for _ in subscription:
                        pass
                ended.append(number)

            client._link.engine.queued_bytes = 1 << 30
            with anyio.fail_after(WITHIN_S):
                async with anyio.create_task_group() as tasks:
                    for number in range(4):
                        tasks.start_soon(wait, number)
                    await anyio.lowlevel.checkpoint()
                    await client.ping()
                    await client.unsubscribe(subscription)
        assert sorted(ended) == [0, 1, 2, 3]
