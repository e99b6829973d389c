"""A disk that is full: publishing is refused and comes back by itself, acks and reads go on and are kept."""

import os
from errno import ENOSPC
from pathlib import Path

import anyio
import pytest

from broker.log import Reserve
from tests.faults.power_cuts import memory_folder
from tests.faults.shim import Call, Shim
from tests.faults.workload import Peer, serving_broker, small_files

pytestmark = pytest.mark.anyio

RESERVE = 64 << 10


class SmallDisk:
    """Has `size` bytes for what is below a folder."""

    def __init__(self, root: Path, size: int) -> None:
        self.root = root
        self.size = size

    def __call__(self, call: Call) -> None:
        wanted = RESERVE if call.kind == "reserve" else len(call.data)
        used = sum(path.stat().st_size for path in self.root.rglob("*") if path.is_file())
        if call.kind in {"write", "reserve"} and used + wanted > self.size:
            raise OSError(ENOSPC, os.strerror(ENOSPC))


async def publish_until_refused(peer: Peer) -> int:
    """Publish one after the other; returns how many were confirmed."""
    confirmed = 0
    while True:
        await peer.say(f'pub t {{"id":"{confirmed}","msg":"{"x" * 500}"}}')
        reply = await peer.hear()
        if reply.startswith("-ERR"):
            assert reply.startswith("-ERR disk"), reply
            return confirmed
        confirmed += 1


async def test_on_a_full_disk_acks_are_kept_and_publishing_comes_back_by_itself() -> None:
    with memory_folder() as folder:
        disk = SmallDisk(folder / "broker", RESERVE + (40 << 10))
        async with small_files():
            with Shim(folder / "broker", disk):
                async with serving_broker(folder / "broker") as port:
                    stored = await fill_and_settle(port, disk)
        async with serving_broker(folder / "broker") as port, await Peer.connect(port) as peer:
            await peer.say("sub t as=s prefetch=1")
            assert "as=s from=0" in await peer.hear()
            # What was acked on the full disk is known to be.
            assert f'"offset":{stored},' in await peer.hear()


async def fill_and_settle(port: int, disk: SmallDisk) -> int:
    """Fill the disk, settle and read all the same, and publish on when there is room; returns how many were settled."""
    reserve = disk.root / "RESERVE"
    async with await Peer.connect(port) as publisher, await Peer.connect(port) as reader:
        with anyio.fail_after(100):
            await reader.say("sub t as=s prefetch=1000 create")
            assert (await reader.hear()).startswith("+OK sub")
            stored = await publish_until_refused(publisher)
            assert stored > 20
            # Far more acks than what is left of the disk could take.
            for offset in range(stored):
                await reader.say(f"ack t @{offset}", "nack t @0")
            answers = 0
            while answers < stored:
                answers += (await reader.hear()).startswith("+OK ack")
            assert not reserve.exists()
            await publisher.say("read t earliest limit=10")
            assert (await publisher.hear()).startswith("+OK read t 10")
            for _ in range(10):
                await publisher.hear()
            disk.size *= 2
            assert await publish_until_refused(publisher) > 20
            assert reserve.exists()
    return stored


def test_a_reserve_is_taken_given_back_and_taken_again(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "RESERVE", 4096)
    assert not reserve.is_held
    assert not reserve.give_back()
    reserve.take()
    assert (reserve.is_held, reserve.path.stat().st_size) == (True, 4096)
    tries: list[bool] = []

    def write() -> str:
        tries.append(reserve.path.exists())
        if reserve.path.exists():
            raise OSError(ENOSPC, "full")
        return "written"

    assert reserve.spend(write) == "written"
    assert (tries, reserve.is_held) == ([True, False], False)
    reserve.take()
    assert reserve.path.exists()


def test_an_error_that_is_not_for_want_of_room_spends_nothing(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "RESERVE", 4096)
    reserve.take()

    def fail() -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        reserve.spend(fail)
    assert reserve.is_held
