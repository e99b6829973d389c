"""A gateway's events are stored once and in order, even if the disk refuses some of the writes."""

from functools import partial
from pathlib import Path
from random import Random

import anyio
import pytest
from anyio import lowlevel
from msgspec import Raw
from structlog import wrap_logger
from structlog.stdlib import BoundLogger
from structlog.testing import LogCapture

from broker.gateways.event_source import outlet as outlets
from broker.gateways.event_source.outlet import Outlet
from tests.broker.gateways.event_source.filling import FillingDisk, serving, stored_messages
from tests.support.waiting import until_async
from tweetwire.protocol.events import IncomingEvent

pytestmark = pytest.mark.anyio

ROUNDS = 200


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the outlet retry without a pause."""
    monkeypatch.setattr(outlets, "RETRY_S", 0.001)


def events(*numbers: int) -> list[IncomingEvent]:
    return [IncomingEvent(id=str(number), msg=Raw(b"%d" % number)) for number in numbers]


async def collect(outlet: Outlet, told: dict[str, list[int]]) -> None:
    """Record, forever, the offsets that the outlet reports as stored."""
    while True:
        for topic, first, count in await outlet.stored():
            told.setdefault(topic, []).extend(range(first, first + count))


async def test_a_refused_event_is_stored_before_events_given_later(tmp_path: Path) -> None:
    disk = FillingDisk()
    async with serving(tmp_path / "broker", disk, "t") as server:
        outlet = Outlet(server, "gateway")
        disk.is_full = True
        outlet.give("t", events(1, 2, 3))
        server.do_work()
        await until_async(lambda: outlet.session.outbox.size)
        disk.is_full = False
        outlet.give("t", events(4, 5))
        server.do_work()
        assert (outlet.is_failing, outlet.unconfirmed) == (True, 5)
        told: dict[str, list[int]] = {}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collect, outlet, told)
            await until_async(lambda: not outlet.unconfirmed)
            tasks.cancel_scope.cancel()
        assert stored_messages(server, "t") == [1, 2, 3, 4, 5]
        assert (told, outlet.is_failing) == ({"t": [0, 1, 2, 3, 4]}, False)
        outlet.close()


@pytest.mark.parametrize("seed", range(5))
async def test_nothing_is_lost_doubled_or_out_of_order_while_the_disk_fills_and_empties(
    tmp_path: Path, seed: int
) -> None:
    dice, disk, told = Random(seed), FillingDisk(), dict[str, list[int]]()
    given: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    async with serving(tmp_path / "broker", disk, "a", "b") as server, anyio.create_task_group() as tasks:
        outlet = Outlet(server, "gateway")
        tasks.start_soon(collect, outlet, told)
        for number in range(ROUNDS):
            topic, some = dice.choice(list(given)), range(10 * number, 10 * number + dice.randint(1, 9))
            given[topic] += some
            # Fill the disk at least once, so that each seed has a refusal.
            disk.is_full |= number == ROUNDS // 2
            outlet.give(topic, events(*some))
            server.do_work()
            if number == ROUNDS // 2:
                await until_async(lambda: disk.refused)
            disk.is_full = dice.random() < (0.8 if disk.is_full else 0.2)
            for _ in range(dice.randint(0, 5)):
                await lowlevel.checkpoint()
        disk.is_full = False
        await until_async(lambda: not outlet.unconfirmed)
        tasks.cancel_scope.cancel()
        assert disk.refused
        assert (outlet.is_failing, outlet.dropped) == (False, 0)
        assert {topic: stored_messages(server, topic) for topic in given} == given
        assert told == {topic: list(range(len(numbers))) for topic, numbers in given.items()}
        outlet.close()


async def test_the_outlet_is_failing_until_the_refused_event_is_stored(tmp_path: Path) -> None:
    disk, told = FillingDisk(), dict[str, list[int]]()
    async with serving(tmp_path / "broker", disk, "a") as server, anyio.create_task_group() as tasks:
        outlet = Outlet(server, "gateway")
        tasks.start_soon(collect, outlet, told)
        disk.is_full = True
        outlet.give("a", events(1))
        outlet.give("no-topic-yet", events(2))
        server.do_work()
        before = disk.refused
        await until_async(lambda: outlet.is_failing and disk.refused > before + 10)
        assert (told, outlet.unconfirmed) == ({}, 2)
        disk.is_full = False
        await until_async(lambda: not outlet.is_failing)
        assert (stored_messages(server, "a"), stored_messages(server, "no-topic-yet")) == ([1], [2])
        await until_async(lambda: not outlet.unconfirmed)
        tasks.cancel_scope.cancel()
    assert told == {"a": [0], "no-topic-yet": [0]}


async def test_a_wait_shorter_than_the_retry_pause_still_gives_the_event_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlets, "RETRY_S", 0.05)
    disk = FillingDisk()
    async with serving(tmp_path / "broker", disk, "a") as server:
        outlet = Outlet(server, "gateway")
        disk.is_full = True
        outlet.give("a", events(1))
        server.do_work()
        await until_async(lambda: outlet.session.outbox.size)
        disk.is_full = False
        with anyio.fail_after(100):
            while outlet.unconfirmed:
                with anyio.move_on_after(0.005):
                    await outlet.stored()
        assert stored_messages(server, "a") == [1]
        outlet.close()


def has_refused(disk: FillingDisk, count: int) -> bool:
    return disk.refused >= count


async def test_an_outage_is_logged_once_for_any_number_of_retries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = LogCapture()
    monkeypatch.setattr(outlets, "logger", wrap_logger(None, processors=[logs], wrapper_class=BoundLogger))
    disk, told = FillingDisk(), dict[str, list[int]]()
    async with serving(tmp_path / "broker", disk, "a") as server, anyio.create_task_group() as tasks:
        outlet = Outlet(server, "gateway")
        tasks.start_soon(collect, outlet, told)
        for outage in (1, 2):
            disk.is_full = True
            outlet.give("a", events(outage))
            server.do_work()
            await until_async(partial(has_refused, disk, disk.refused + 11))
            disk.is_full = False
            await until_async(lambda: not outlet.unconfirmed)
        tasks.cancel_scope.cancel()
    assert [log["event"] for log in logs.entries] == ["the disk refuses the events of a gateway; retrying"] * 2
