"""The promise `replicated` with both clients and a real broker, also over kills of the broker."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import anyio
import pytest

from tests.support.processes import BrokerProcess
from tests.tweetwire.client.either_client import Opener
from tweetwire import Client, Event, PromiseNotKept, Receipt
from tweetwire.protocol.confirmation import Confirmation

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("confirmations") / "broker") as process:
        yield process


async def carry(client: Client, topic: str, name: str) -> None:
    """Mark every event of a topic as soon as it can be read, as a bridge does."""
    at = 0
    while True:
        page = await client.read(topic, at, wait_s=30)
        at = page.next
        await client.mark(topic, name, at)


async def test_an_event_is_replicated_once_the_mark_has_passed_it(
    opened: Opener, broker: BrokerProcess, topic: str
) -> None:
    async with opened(broker.address) as client, Client(broker.address, name="bridge") as bridge:
        await client.call("create", topic)
        assert await client.call("confirm", topic) == Confirmation()
        assert await client.call("confirm", topic, after=["m"], within_s=20) == Confirmation(("m",), 20_000)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(carry, bridge, topic, "m")
            receipts: list[Receipt] = [
                await client.call("publish", topic, Event(id=str(n), msg=n), promise="replicated") for n in range(5)
            ]
            receipts.append(await client.call("publish", topic, Event(id="x", msg=1), after=[]))
            receipts.append(await client.call("publish", topic, Event(id="y", msg=1), after="m"))
            tasks.cancel_scope.cancel()
        expected = ["replicated"] * 5 + ["synced", "replicated"]
        assert [one.durability for one in receipts] == expected


async def test_a_late_event_raises_only_if_the_promise_is_requested(
    opened: Opener, broker: BrokerProcess, topic: str
) -> None:
    async with opened(broker.address) as client:
        event = Event(id="1", msg=1, producer="p", sequence=1)
        began = monotonic()
        receipt = await client.call("publish", topic, event, after="nobody", within_s=0.3)
        assert (receipt.durability, monotonic() - began > 0.3) == ("synced", True)
        with pytest.raises(PromiseNotKept, match="is synced, and was not replicated") as caught:
            await client.call("publish", topic, event, after="nobody", within_s=0.3, promise="replicated")
        assert caught.value.receipt.is_duplicate
        await client.call("mark", topic, "nobody", 1)
        again = await client.call("publish", topic, event, after="nobody", promise="replicated")
        assert (again.is_duplicate, again.durability) == (True, "replicated")


async def test_a_handshake_waits_for_the_marks_of_its_topic(
    opened: Opener, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    async with opened(broker.address, name=f"h-{topic[-40:]}", spool=tmp_path) as client:
        await client.call("create", topic)
        await client.call("confirm", topic, after="m", within_s=0.3)
        with pytest.raises(PromiseNotKept):
            await client.call("publish", topic, Event(id="1", msg=1), qos=2, promise="replicated")
        with pytest.raises(ValueError, match="qos=1"):
            await client.call("publish", topic, Event(id="2", msg=1), qos=2, after="m")
        assert (await client.call("read", topic, 0)).next == 1


@pytest.mark.parametrize("after", ["two words", "a,b", ["a,b"], [""], ""])
async def test_a_name_that_cannot_be_in_the_line_is_refused(
    opened: Opener, broker: BrokerProcess, topic: str, after: object
) -> None:
    async with opened(broker.address) as client:
        with pytest.raises(ValueError, match="after"):
            await client.call("publish", topic, Event(id="1", msg=1), after=after)


async def test_a_pipelined_publisher_learns_which_events_are_replicated(broker: BrokerProcess, topic: str) -> None:
    found: list[Receipt] = []
    async with Client(broker.address) as client, Client(broker.address, name="bridge") as bridge:
        await client.create(topic)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(carry, bridge, topic, "m")
            async with client.publisher(topic, on_confirm=found.append, after="m", within_s=20) as publisher:
                await publisher.publish_many(Event(id=str(n), msg=n) for n in range(20_000))
            tasks.cancel_scope.cancel()
    assert {one.durability for one in found} == {"replicated"}
    assert sum(one.count for one in found) == 20_000


async def test_each_replicated_event_was_below_the_mark_whatever_is_killed(tmp_path: Path, topic: str) -> None:
    """The copying task moves the mark only after it has copied the events, so each replicated event must be in the copy."""
    copied: dict[int, str] = {}
    confirmed: dict[int, str] = {}
    with BrokerProcess(tmp_path / "broker") as broker:

        async def copy() -> None:
            async with Client(broker.address, name="bridge") as bridge:
                at = 0
                while True:
                    page = await bridge.read(topic, at, wait_s=5)
                    copied.update((event.offset, event.id) for event in page.events)
                    at = page.next
                    await bridge.mark(topic, "m", at)

        async def publish() -> None:
            async with Client(broker.address, name="publisher") as client:
                for n in range(300):
                    event = Event(id=str(n), msg=n, producer="p", sequence=n)
                    receipt = await client.publish(topic, event)
                    if receipt.durability == "replicated":
                        assert copied[receipt.first] == str(n) or receipt.is_duplicate
                        confirmed[receipt.first] = str(n)

        async with Client(broker.address) as client:
            await client.create(topic)
            await client.confirm(topic, after="m", within_s=20)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(copy)
            async with anyio.create_task_group() as publishing:
                publishing.start_soon(publish)
                for _ in range(3):
                    await anyio.sleep(0.5)
                    await anyio.to_thread.run_sync(broker.kill)
                    await anyio.to_thread.run_sync(broker.start)
            tasks.cancel_scope.cancel()
        assert len(confirmed) > 250
        async with Client(broker.address) as client:
            (mark,) = await client.marks(topic)
            assert mark.offset <= 300
            assert [event.id for event in (await client.read(topic, 0)).events] == [str(n) for n in range(300)]
