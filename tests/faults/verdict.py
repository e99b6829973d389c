"""Compare the events that a broker recovers after a fault with those that were confirmed before it."""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from broker.core import Broker, Topic
from broker.core.steps import Steps
from broker.core.topic.whereabouts import lowest_open
from broker.data_directory import DataDirectory, Sizes
from broker.keeper import Keeper
from tests.faults.workload import KEPT, SETTLED, SUBSCRIPTION, Ledger

__all__ = ["Verdict", "judge"]


@dataclass
class Verdict:
    """How many confirmed events survived a fault. `notes` has a sentence for each error."""

    faults: int = 0
    confirmed: int = 0
    lost: int = 0
    doubled: int = 0
    longest_start_s: float = 0.0
    notes: tuple[str, ...] = ()

    def __add__(self, other: "Verdict") -> "Verdict":
        return Verdict(
            self.faults + other.faults,
            self.confirmed + other.confirmed,
            self.lost + other.lost,
            self.doubled + other.doubled,
            max(self.longest_start_s, other.longest_start_s),
            self.notes + other.notes,
        )


async def judge(
    folder: Path,
    ledger: Ledger,
    place: int,
    *,
    name: str,
    excused: Iterable[tuple[str, int]] = (),
    originals: frozenset[bytes] | None = None,
    is_whole: bool = True,
) -> Verdict:
    """Open a folder as a broker does and compare it with the ledger as of `place`.

    `excused` has the (topic, offset) whose bytes the fault itself destroyed. The broker must report them as damaged. With
    `originals`, it may only serve lines that are among them. If `is_whole` is false, the fault has shortened files, so the
    broker cannot notice the missing events.
    """
    data = DataDirectory(folder, "synced", Sizes(8 << 10, 0))
    data.acquire()
    broker = Broker(data, version="faults", promise="synced", recent_bytes=1 << 20)
    keeper = Keeper(broker, data, lambda: time.time_ns() // 1_000_000)
    began = time.perf_counter()
    await keeper.recover([])
    verdict = Verdict(1, longest_start_s=time.perf_counter() - began)
    wrong: list[str] = []
    spared = set(excused)
    for topic in (KEPT, SETTLED):
        expected = ledger.confirmed_by(place, topic)
        verdict.confirmed += len(expected)
        if topic not in broker.topics:
            verdict.lost += len(expected)
            wrong += [f"the topic {topic} is gone"] if expected else []
            continue
        there, damaged = _events(broker.topics[topic], originals)
        if None in there.values():
            verdict.lost += 1
            wrong.append(f"{topic} serves a line that nobody wrote")
        silent = [at for of, at in spared if of == topic and at not in there and at not in damaged and is_whole]
        if silent and min(silent) >= broker.topics[topic].log.earliest:
            verdict.lost += 1
            wrong.append(f"{topic} @{silent[0]} is damaged and nobody is told")
        settled = ledger.acked_by(place) if topic == SETTLED else set()
        for offset, sequence in expected.items():
            if (
                there.get(offset) != sequence
                and (topic, offset) not in spared
                and not (offset in settled and offset not in there)
            ):
                verdict.lost += 1
                wrong.append(f"{topic} @{offset} is {there.get(offset, 'gone')}")
        highest = max([*expected, *settled], default=-1)
        if broker.topics[topic].visible <= highest and is_whole:
            verdict.lost += 1
            wrong.append(f"{topic} continues at @{broker.topics[topic].visible}, and @{highest} was given before")
        verdict.doubled += len(there) - len(set(there.values()))
        missing = _gaps([one for one in there.values() if one is not None], len(spared)) if is_whole else 0
        if missing:
            verdict.lost += missing
            wrong.append(f"{topic} has {missing} gaps in its sequences")
        if topic == SETTLED and place >= ledger.subscribed_at:
            unsettled = _unsettled(broker.topics[topic])
            forgotten = [at for at in there if at not in settled and at not in unsettled and (topic, at) not in spared]
            verdict.lost += len(forgotten)
            wrong += [f"{topic} @{at} was not acked and is not given again" for at in forgotten[:3]]
    await keeper.close()
    for one in broker.topics.values():
        one.log.close()
    data.release()
    verdict.notes = tuple(f"{name}: {sentence}" for sentence in wrong[:5])
    return verdict


def _events(topic: Topic, originals: frozenset[bytes] | None) -> tuple[dict[int, int | None], set[int]]:
    """Return {offset: sequence} of the readable events, and the damaged offsets. A changed line has the sequence None."""
    found: dict[int, int | None] = {}
    damaged: set[int] = set()
    at = 0
    while at < topic.visible:
        lines, at, broken = topic.log.read(at, 10_000, 1 << 20)
        damaged |= {one.offset for one in broken}
        for number, line in enumerate(lines):
            if originals is not None and line not in originals:
                found[-1 - number] = None
                continue
            event = json.loads(line)
            found[event["offset"]] = event["sequence"]
    return found, damaged


def _unsettled(topic: Topic) -> set[int]:
    subscription = topic.subscriptions.get(SUBSCRIPTION)
    return set() if subscription is None else set(_done(lowest_open(subscription, 0, 1 << 40)))


def _done(steps: Steps[list[int]]) -> list[int]:
    """Run all steps of a job that needs no thread. Return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: list[int] = end.value
            return found


def _gaps(sequences: list[int], spared: int) -> int:
    """Count the missing sequences below the highest one. A producer that continues after that one would never send them."""
    return max(0, (max(sequences) - min(sequences) + 1 - len(set(sequences))) - spared) if sequences else 0
