"""The rows R1 to R7: a topic to central engines, each compared with the engine alone."""

import statistics
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from bench import jetstream, kafka_bridge, marks, redis_bridge
from bench.rounds import Rounds
from bench.row import BenchRow
from bench.settings import BenchSettings

__all__ = ["BRIDGE_ROWS"]

Measure = Callable[[BenchSettings, Rounds], Iterable[BenchRow]]


def _r1(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("R1", partial(redis_bridge.to_redis, settings.with_share(0.4)))
    bridge, script, xadd = (statistics.median(rates) for rates in zip(*found, strict=True))
    yield BenchRow(
        name="R1",
        what="topic -> Redis, synced, relative to the script alone",
        unit="%",
        figures=[100 * run.bridge / run.script for run in found],
        goal=60,
        beside=f"the bridge: {bridge:,.0f} /s, the script: {script:,.0f} /s",
    )
    yield BenchRow(
        name="R1",
        what="the same, relative to pipelined XADD with the same fields",
        unit="times",
        figures=[run.bridge / run.xadd for run in found],
        goal=3,
        beside=f"XADD by redis-py, 1,000 in a pipeline: {xadd:,.0f} /s",
    )


def _r2(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("R2", partial(jetstream.to_jetstream, settings.with_share(0.2)))
    ours, alone = (statistics.median(rates) for rates in zip(*found, strict=True))
    yield BenchRow(
        name="R2",
        what="topic -> JetStream, relative to atomic batches by nats-py alone",
        unit="%",
        figures=[100 * bridge / bare for bridge, bare in found],
        goal=60,
        beside=f"the bridge: {ours:,.0f} /s, nats-py: {alone:,.0f} /s",
    )


def _r3(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("R3", partial(kafka_bridge.to_kafka, settings.with_share(0.6)))
    yield _beside("R3", "topic -> Kafka, transactions, of confluent-kafka alone", found, 50)


def _r4(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("R4", partial(kafka_bridge.from_kafka, settings.with_share(0.6)))
    yield _beside("R4", "Kafka -> topic, synced, of a bare consume loop", found, 40)


def _beside(name: str, what: str, found: list[tuple[float, float]], goal: float) -> BenchRow:
    """Return the row of a ratio of two rates."""
    ours, alone = (statistics.median(rates) for rates in zip(*found, strict=True))
    return BenchRow(
        name=name,
        what=what,
        unit="%",
        figures=[100 * bridge / bare for bridge, bare in found],
        goal=goal,
        beside=f"the bridge: {ours:,.0f} /s, alone: {alone:,.0f} /s",
    )


def _r5(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("R5", partial(redis_bridge.replicated, settings))
    alone = statistics.median(bare for _, bare in found)
    yield BenchRow(
        name="R5",
        what=f"publish -> replicated at {redis_bridge.REPLICATED_RATE:,}/s, p50, above one append of Redis",
        unit="ms",
        figures=[ours - bare for ours, bare in found],
        goal=1.5,
        beside=f"one append: {alone:.2f} ms",
    )


def _r6(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("R6", partial(redis_bridge.away, settings))
    what = f"Redis away for {redis_bridge.AWAY_S} s at {redis_bridge.AWAY_RATE:,}/s"
    published, memory, caught_up = ([run[at] for run in found] for at in range(3))
    yield BenchRow(name="R6", what=f"{what}: published", unit="%", figures=published, goal=95)
    yield BenchRow(name="R6", what="the same: growth of the broker's memory", unit="MB", figures=memory, goal=20)
    yield BenchRow(
        name="R6", what="catching up, relative to the rate of a backlog (R1)", unit="%", figures=caught_up, goal=80
    )


def _r7(settings: BenchSettings, rounds: Rounds) -> Iterator[BenchRow]:
    found = rounds("R7", partial(marks.publish_marked, settings))
    plain = statistics.median(rate for rate, _ in found)
    yield BenchRow(
        name="R7",
        what="publish through Client, confirmed replicated, relative to confirmed synced",
        unit="%",
        figures=[100 * marked / bare for bare, marked in found],
        goal=75,
        beside=f"confirmed synced, with the same reader: {plain:,.0f} /s",
    )


BRIDGE_ROWS: Final[dict[str, Measure]] = {"R1": _r1, "R2": _r2, "R3": _r3, "R4": _r4, "R5": _r5, "R6": _r6, "R7": _r7}
