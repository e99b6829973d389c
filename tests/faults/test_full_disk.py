"""A full disk: publishing is refused until there is room again, while reads work and acks are kept."""

import os
from errno import ENOSPC
from pathlib import Path

import anyio
import pytest

from broker import keeper
from broker.journal import Journal
from broker.log import Reserve
from tests.faults.power_cuts import memory_folder
from tests.faults.shim import Call, Shim
from tests.faults.workload import Peer, serving_broker, small_files

pytestmark = pytest.mark.anyio

RESERVE = 64 << 10


class SmallDisk:
    """A disk with `size` bytes for the files below a folder."""

    def __init__(self, root: Path, size: int) -> None:
        self.root = root
        self.size = size

    def __call__(self, call: Call) -> None:
        wanted = RESERVE if call.kind == "reserve" else len(call.data)
        used = sum(path.stat().st_size for path in self.root.rglob("*") if path.is_file())
        if call.kind in {"write", "reserve"} and used + wanted > self.size:
            raise OSError(ENOSPC, os.strerror(ENOSPC))


async def publish_until_refused(peer: Peer) -> int:
    """Publish events one by one until one is refused. Returns how many were confirmed."""
    confirmed = 0
    while True:
        await peer.say(f'pub t {{"id":"{confirmed}","msg":"{"x" * 500}"}}')
        reply = await peer.hear()
        if reply.startswith("-ERR"):
            assert reply.startswith("-ERR disk"), reply
            return confirmed
        confirmed += 1


async def test_on_a_full_disk_acks_are_kept_and_publishing_resumes_by_itself() -> None:
    with memory_folder() as folder:
        disk = SmallDisk(folder / "broker", RESERVE + (40 << 10))
        async with small_files():
            with Shim(folder / "broker", disk):
                async with serving_broker(folder / "broker") as port:
                    stored = await fill_and_settle(port, disk)
        async with serving_broker(folder / "broker") as port, await Peer.connect(port) as peer:
            await peer.say("sub t as=s prefetch=1")
            assert "as=s from=0" in await peer.hear()
            # The acks on the full disk were kept.
            assert f'"offset":{stored},' in await peer.hear()


async def fill_and_settle(port: int, disk: SmallDisk) -> int:
    """Fill the disk. Settle and read while it is full, and publish once there is room. Returns how many events were settled."""
    reserve = disk.root / "RESERVE"
    async with await Peer.connect(port) as publisher, await Peer.connect(port) as reader:
        with anyio.fail_after(100):
            await reader.say("sub t as=s prefetch=1000 create")
            assert (await reader.hear()).startswith("+OK sub")
            stored = await publish_until_refused(publisher)
            assert stored > 20
            # Send far more acks than the rest of the disk has room for.
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


COMMENTS = 3000
KEPT_ELSEWHERE = ("describe t x", "schema t none", "retain t age=1d", "checkpoint t p x", "forget t p")


async def test_a_full_disk_refuses_everything_that_can_be_refused_and_memory_does_not_grow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeper, "UNTAKEN_BYTES_MAX", 100_000)
    dropped: list[int] = []
    drop = Journal.drop_untaken

    def note(state: Journal) -> None:
        dropped.append(state.untaken_bytes)
        drop(state)

    monkeypatch.setattr(Journal, "drop_untaken", note)
    with memory_folder() as folder:
        disk = SmallDisk(folder / "broker", RESERVE + (40 << 10))
        async with small_files():
            with Shim(folder / "broker", disk):
                async with serving_broker(folder / "broker") as port:
                    await flood(port, disk, dropped)
        async with serving_broker(folder / "broker") as port, await Peer.connect(port) as peer:
            await peer.say("describe t", "explain t @0 as=s")
            assert '"text":"at last"' in await peer.hear()
            # The count has the 20 failed tries, and one for the end of the connection.
            assert '"failed_tries":21,' in await peer.hear()


async def flood(port: int, disk: SmallDisk, dropped: list[int]) -> None:
    """Make the disk refuse all writes, and let events fail until the waiting records exceed their limit."""
    async with await Peer.connect(port) as peer, await Peer.connect(port) as failing:
        with anyio.fail_after(60):
            await peer.say('pub t {"id":"a","msg":1,"producer":"p","sequence":1}')
            await peer.hear()
            await failing.say("hello failing quiet", "sub t as=s from=earliest tries=1000")
            await publish_until_refused(peer)
            disk.size = 0
            await failing.say("nack t @0")
            for _ in range(COMMENTS // 100):
                await peer.say(*[f"comment t {'x' * 1000}"] * 100)
                for _ in range(100):
                    assert (await peer.hear()).startswith("-ERR disk ")
            await peer.say(*KEPT_ELSEWHERE, 'pub2 t {"id":"x","msg":1}', "hello x", 'pub2 t {"id":"x","msg":1}')
            for _ in KEPT_ELSEWHERE:
                assert (await peer.hear()).startswith("-ERR disk ")
            assert (await peer.hear()).startswith("-ERR bad_arguments say hello")
            assert (await peer.hear()) == "+OK hello x"
            assert (await peer.hear()).startswith("-ERR disk ")
            for _ in range(19):
                await failing.say(f'nack t @0 "{"x" * 16000}"')
            await failing.say("ping")
            while await failing.hear() != "+PONG":
                pass
            assert dropped
            assert max(dropped) < 150_000
            disk.size = 10 << 20
            while True:
                await peer.say("comment t at last")
                if (await peer.hear()).startswith("+OK"):
                    break
                await anyio.sleep(0.05)


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


def test_an_error_other_than_a_full_disk_does_not_use_the_reserve(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "RESERVE", 4096)
    reserve.take()

    def fail() -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        reserve.spend(fail)
    assert reserve.is_held
