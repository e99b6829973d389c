"""The last failed try of an event, with a kill of the broker or a power cut after each step that follows."""

import json
from pathlib import Path
from random import Random

import anyio
import pytest

from tests.faults.disk import Disk
from tests.faults.power_cuts import memory_folder
from tests.faults.shim import Call, Shim
from tests.faults.workload import Peer, serving_broker

pytestmark = pytest.mark.anyio

EVENTS = 3
SUBSCRIBE = "sub t as=s tries=1 prefetch=10 create"


async def die(peer: Peer, count: int) -> None:
    """Receive events, and nack each until it is dead."""
    for _ in range(count):
        while not (line := await peer.hear()).startswith("{"):
            pass
        await peer.say(f"nack t @{json.loads(line)['offset']}")


async def run(folder: Path) -> tuple[list[Call], int, list[int]]:
    """Let events die. Return the calls, and the places of the subscription and of the reply to each death among them."""
    answered: list[int] = []
    with Shim(folder) as shim:
        async with serving_broker(folder) as port, await Peer.connect(port) as peer:
            await peer.say(SUBSCRIBE, "checkpoint t x y")
            while not (await peer.hear()).startswith("+OK checkpoint"):
                pass
            began = len(shim.calls)
            for n in range(EVENTS):
                await peer.say(f'pub t {{"id":"{n}","msg":{n}}}')
                await die(peer, 1)
                while not (await peer.hear()).startswith("+OK nack"):
                    pass
                answered.append(len(shim.calls))
    return shim.calls, began, answered


async def state_of(peer: Peer, offset: int) -> dict[str, object]:
    await peer.say(f"explain t @{offset} as=s")
    while not (line := await peer.hear()).startswith("+OK explain"):
        pass
    found: dict[str, object] = json.loads(line.split(" ", 4)[4])
    return found


async def deliveries_and_letters(folder: Path) -> tuple[list[int], list[int]]:
    """Start a broker and nack each delivery until all events are dead. Returns the delivered and the dead offsets."""
    async with serving_broker(folder) as port, await Peer.connect(port) as peer:
        await peer.say("read t earliest")
        there = int((await peer.hear()).split()[3])
        for _ in range(there):
            await peer.hear()
        await peer.say(SUBSCRIBE)
        delivered: list[int] = []
        for offset in range(there):
            # Nack the event until it is dead and its dead letter is stored.
            with anyio.fail_after(20):
                while (found := await state_of(peer, offset)).get("dead_letter") is None:
                    if found["state"] == "in_flight":
                        delivered.append(offset)
                        await peer.say(f"nack t @{offset}")
        await peer.say("read dead_letters earliest")
        while not (line := await peer.hear()).startswith("+OK read"):
            pass
        letters = [json.loads(await peer.hear())["msg"]["offset"] for _ in range(int(line.split()[3]))]
    return delivered, letters


@pytest.mark.parametrize("how", ["killed", "dropped", "torn", "reordered"])
async def test_a_death_that_was_answered_is_kept_and_has_one_letter_wherever_the_broker_ends(how: str) -> None:
    dice = Random(7)
    with memory_folder() as folder:
        calls, began, answered = await run(folder / "broker")
    disk = Disk()
    for place in range(began, len(calls) + 1):
        disk.take(calls[disk.taken : place])
        with memory_folder() as folder:
            disk.write(disk.cut(how, dice), folder)
            delivered, letters = await deliveries_and_letters(folder)
        assert sorted(letters) == sorted(set(letters)), (place, calls[place - 1])
        if how == "killed":
            known_dead = {offset for offset, at in enumerate(answered) if at <= place}
            assert known_dead.isdisjoint(delivered), (place, calls[place - 1])
            assert known_dead <= set(letters)
