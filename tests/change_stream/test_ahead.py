"""Batches that are fetched ahead stay within the bounds and in order, and a failure follows the batches before it."""

import anyio
import pytest
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from change_stream.ahead import Ahead
from change_stream.resume import StreamPosition
from change_stream.watch import ChangeBatch

pytestmark = pytest.mark.anyio
EMPTY = RawBSONDocument(b"\x05\x00\x00\x00\x00")


def batch(changes: int, size: int = 10) -> ChangeBatch:
    return ChangeBatch([EMPTY] * changes, StreamPosition(Timestamp(1, 1)), size)


async def is_refused(ahead: Ahead, more: ChangeBatch) -> bool:
    with anyio.move_on_after(0.01) as scope:
        await ahead.put(more)
    return scope.cancelled_caught


async def test_batches_come_in_order() -> None:
    ahead = Ahead(100, 1000)
    first, second = batch(1), batch(2)
    await ahead.put(first)
    await ahead.put(second)
    assert await ahead.get() is first
    assert await ahead.get() is second
    assert (ahead.changes, ahead.bytes) == (0, 0)


async def test_changes_are_bounded() -> None:
    ahead = Ahead(3, 1000)
    await ahead.put(batch(2))
    assert await is_refused(ahead, batch(2))
    await ahead.put(batch(1))


async def test_bytes_are_bounded() -> None:
    ahead = Ahead(100, 100)
    await ahead.put(batch(1, size=60))
    assert await is_refused(ahead, batch(1, size=60))
    await ahead.get()
    await ahead.put(batch(1, size=60))


async def test_one_batch_above_the_bounds_passes() -> None:
    ahead = Ahead(1, 1)
    with anyio.fail_after(60):
        await ahead.put(batch(50, size=50))


async def test_a_waiting_reader_is_woken() -> None:
    ahead = Ahead(1, 100)
    await ahead.put(batch(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ahead.put, batch(1))
        await anyio.lowlevel.checkpoint()
        with anyio.fail_after(60):
            await ahead.get()
            await ahead.get()


async def test_a_failure_comes_after_the_fetched_changes() -> None:
    ahead = Ahead(100, 100)
    await ahead.put(batch(1))
    ahead.fail(ValueError("gone"))
    await ahead.get()
    with pytest.raises(ValueError, match="gone"):
        await ahead.get()
