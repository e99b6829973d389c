"""Marks, waiting reads and the broker's identity with both clients and a real broker."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import anyio
import pytest

from tests.support.processes import BrokerProcess
from tests.tweetwire.client.either_client import Opener
from tweetwire import Client, Event, MarkInfo, Refusal

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("marks") / "broker") as process:
        yield process


def events(count: int) -> list[Event]:
    return [Event(id=f"m{n}", msg=n) for n in range(count)]


async def test_a_mark_is_moved_shown_and_forgotten(opened: Opener, broker: BrokerProcess, topic: str) -> None:
    async with opened(broker.address) as client:
        await client.publish_many(topic, events(10))
        assert await client.call("mark", topic, "m", 7, excepted=[2, 5], checkpoint="7/1") == 7
        assert await client.call("mark", topic, "m", 3) == 7
        expected = MarkInfo("m", 7, 3, (2, 5), "7/1")
        assert await client.call("marks", topic) == [expected]
        await client.call("unmark", topic, "m")
        await client.call("unmark", topic, "m")
        assert await client.call("marks", topic) == []
        with pytest.raises(Refusal, match="ends before @10"):
            await client.call("mark", topic, "m", 11)


async def test_any_number_of_exceptions_is_sent_in_parts(opened: Opener, broker: BrokerProcess, topic: str) -> None:
    async with opened(broker.address) as client:
        await client.publish_many(topic, events(3000))
        excepted = list(range(0, 3000, 2))
        assert await client.call("mark", topic, "m", 3000, excepted=reversed(excepted), checkpoint="c") == 3000
        (mark,) = await client.call("marks", topic)
        assert (list(mark.excepted), mark.checkpoint) == (excepted, "c")


@pytest.mark.parametrize(
    "options",
    [
        {"checkpoint": "two words"},
        {"checkpoint": ""},
        {"checkpoint": "c" * 4097},
        {"excepted": [5]},
        {"excepted": ["1"]},
    ],
)
async def test_an_argument_that_cannot_be_in_the_line_is_refused(
    opened: Opener, broker: BrokerProcess, topic: str, options: dict[str, object]
) -> None:
    async with opened(broker.address) as client:
        with pytest.raises(ValueError, match=r"checkpoint|exception|excepted"):
            await client.call("mark", topic, "m", 5, **options)
        with pytest.raises(ValueError, match="one word"):
            await client.call("mark", topic, "m @9\nquit", 5)


async def test_a_read_waits_for_the_next_event(opened: Opener, broker: BrokerProcess, topic: str) -> None:
    async with Client(broker.address, name="publisher") as publisher, opened(broker.address) as reader:
        await publisher.create(topic)
        pages = []

        async def read() -> None:
            pages.append(await reader.call("read", topic, "latest", wait_s=30))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            while not pages:
                await publisher.publish(topic, Event(id="e", msg=1))
                await anyio.sleep(0.01)
        assert [event.id for event in pages[0].events] == ["e"] * len(pages[0].events)
        assert pages[0].events


async def test_a_wait_is_over_in_its_time_and_may_be_longer_than_the_timeout_of_the_client(
    opened: Opener, broker: BrokerProcess, topic: str
) -> None:
    async with opened(broker.address, timeout_s=0.4) as client:
        await client.publish_many(topic, events(2))
        began = monotonic()
        page = await client.call("read", topic, 2, wait_s=1.5)
        assert 1.5 <= monotonic() - began < 10
        assert (page.events, page.next) == ([], 2)


async def test_a_wait_outlasts_a_broker_that_restarts(opened: Opener, topic: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        async with opened(broker.address) as reader:
            await reader.publish_many(topic, events(1))
            pages = []

            async def read() -> None:
                pages.append(await reader.call("read", topic, 1, wait_s=60))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                for stop in (broker.stop, broker.kill):
                    await anyio.sleep(0.3)
                    await anyio.to_thread.run_sync(stop)
                    await anyio.to_thread.run_sync(broker.start)
                async with Client(broker.address) as publisher:
                    await publisher.publish(topic, Event(id="late", msg=1))
            assert [event.id for event in pages[0].events] == ["late"]


async def test_both_clients_know_the_identity_of_the_broker(opened: Opener, broker: BrokerProcess) -> None:
    async with opened(broker.address) as client:
        identity = client.own.broker_identity
        assert isinstance(identity, str)
        assert len(identity) == 22
        assert (await client.call("stats"))["identity"] == identity
