"""While the engine writes, a topic is read ahead: small pages become one part, and memory stays bounded."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import anyio
import anyio.lowlevel
import pytest

from bridge.ahead import Prepared, ReadAhead
from bridge.central import PositionMoved
from bridge.envelope import OutgoingEnvelope
from bridge.local import LocalTopic
from bridge.options import Options
from tests.bridge.records import stored
from tests.support.waiting import until_async
from tweetwire import Page, StoredEvent

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Script:
    """A topic whose reads return the pages of a script, then fail or wait forever."""

    def __init__(self, pages: Sequence[Page], end: Exception | None = None) -> None:
        self.pages = list(pages)
        self.reads = 0
        self._end = end

    async def read(self, offset: int, *, limit: int, bytes_max: int, wait_s: float) -> Page:
        self.reads += 1
        await anyio.lowlevel.checkpoint()
        if self.pages:
            return self.pages.pop(0)
        if self._end is not None:
            raise self._end
        await anyio.sleep_forever()
        raise AssertionError


def page(first: int, end: int, *missing: int, msg: object = 1) -> Page:
    events: list[StoredEvent] = [stored(offset, msg) for offset in range(first, end) if offset not in missing]
    return Page(events, end)


@asynccontextmanager
async def reading(script: Script, batch: int = 10, batch_bytes: int = 1 << 20) -> AsyncIterator[ReadAhead]:
    local = cast(LocalTopic, script)
    ahead = ReadAhead(local, OutgoingEnvelope("orders", "b", "c"), Options(batch=batch, batch_bytes=batch_bytes), 0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ahead.run)
        yield ahead
        ahead.stop()


def offsets(part: Prepared | None) -> list[list[int]]:
    assert part is not None
    assert part.length == sum(len(run.events) for run in part.runs)
    assert all([one.offset for one in run.records] == [event.offset for event in run.events] for run in part.runs)
    return [[event.offset for event in run.events] for run in part.runs]


async def test_small_pages_that_came_during_a_write_are_one_part() -> None:
    script = Script([page(0, 1), page(1, 2), page(2, 5), page(5, 7)])
    async with reading(script) as ahead:
        await until_async(lambda: script.reads == 5)
        part = await ahead.take()
        assert offsets(part) == [[0, 1, 2, 3, 4, 5, 6]]
        assert part is not None
        assert part.next == 7


async def test_a_part_is_at_most_one_batch_and_less_than_two_are_held() -> None:
    script = Script([page(first, first + 6) for first in range(0, 60, 6)])
    async with reading(script) as ahead:
        await until_async(lambda: script.reads == 2)
        await anyio.sleep(0.02)
        assert script.reads == 2
        assert offsets(await ahead.take()) == [[*range(6)]]
        taken = [await ahead.take() for _ in range(9)]
    assert [part.next for part in taken if part] == list(range(12, 66, 6))


async def test_the_bytes_of_messages_bound_what_is_held() -> None:
    script = Script([page(number, number + 1, msg="x" * 100) for number in range(20)])
    async with reading(script, batch=1000, batch_bytes=350) as ahead:
        await until_async(lambda: script.reads == 4)
        await anyio.sleep(0.02)
        assert script.reads == 4
        assert offsets(await ahead.take()) == [[0, 1, 2]]


async def test_missing_events_stay_between_the_runs_of_a_part() -> None:
    script = Script([page(0, 4, 0, 2), page(4, 6, 4, 5), page(6, 8)])
    async with reading(script) as ahead:
        await until_async(lambda: script.reads == 4)
        part = await ahead.take()
        assert offsets(part) == [[1], [3], [6, 7]]
        assert part is not None
        assert part.next == 8


async def test_after_a_failure_the_rest_is_taken_and_then_nothing() -> None:
    script = Script([page(0, 2)], PositionMoved("the log is another one"))
    async with reading(script) as ahead:
        assert offsets(await ahead.take()) == [[0, 1]]
        assert await ahead.take() is None
        assert isinstance(ahead.failure, PositionMoved)


async def test_a_stop_before_the_start_reads_nothing() -> None:
    script = Script([page(0, 2)])
    local = cast(LocalTopic, script)
    ahead = ReadAhead(local, OutgoingEnvelope("orders", "b", "c"), Options(), 0)
    ahead.stop()
    await ahead.run()
    assert await ahead.take() is None
    assert script.reads == 0
