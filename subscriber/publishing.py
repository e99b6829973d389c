"""``python -m subscriber publish``: offers events at a rate, whatever the broker makes of it, and tells how that went.

The stress run starts several of these as processes of their own, so that publishing does not take the time of receiving.
With ``--on-go`` it connects, says ``ready`` on stdout, and begins when it is told ``go`` and the time on stdin.
"""

import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any, Final

import anyio
import msgspec
from anyio import to_thread
from msgspec import Struct
from pydantic import Field

from broker import Client, Receipt, Refusal
from broker.client import Publisher
from broker.errors import StartError
from broker.program import ClientSettings, Name, logger, ready, settings_config
from broker.units import Bytes, Seconds
from subscriber.latency import LatencyHistogram
from subscriber.load import Plan

__all__ = ["Offered", "PublishSettings", "Sending", "merged", "publish"]

CHUNK: Final = 256
WINDOW: Final = 200_000
"""So many events may be unconfirmed. Those that are due then wait, and are late by their own plan."""
PAUSE_S: Final = 0.001
FLUSH_S: Final = 30.0
HOPELESS: Final = frozenset({"bad_name", "forbidden", "unauthenticated"})


class PublishSettings(ClientSettings):
    """Offer events at a rate that does not give way, and tell how late they were sent and confirmed."""

    model_config = settings_config("python -m subscriber publish")

    topic: list[Name] = Field(min_length=1, description="topic to publish to")
    rate: float = Field(1000.0, gt=0, description="events a second, over all topics")
    duration: Seconds = Field("10s", gt=0, validate_default=True, description="how long")
    size: list[Bytes] = Field(
        ["200"],
        min_length=1,
        validate_default=True,
        description="length of msg, drawn if there are several",
    )
    priorities: Annotated[int, Field(ge=1, le=256)] = Field(1, description="priorities 0 … n - 1, drawn")
    name: Name = Field("load", description="name of the producer; a run needs one that the topics do not know yet")
    seed: int = Field(0, description="beginning of the dice")
    on_go: bool = Field(False, description="wait for a line 'go <seconds since 1970>' on stdin")


class Sending(Struct):
    """One second of a run: what was due, sent and confirmed in it."""

    second: int
    due: int = 0
    sent: int = 0
    confirmed: int = 0


class Offered(Struct, kw_only=True):
    """What a publisher tells at its end; `late_ms` is how far behind its plan it was at the worst.

    `confirmed` counts the events of each topic that the broker stored. `latency` has the histogram of the time from when an
    event was due until it was confirmed.
    """

    name: str
    due: int
    sent: int
    confirmed: dict[str, int]
    seconds: float
    late_ms: float
    latency: dict[str, Any]
    series: list[Sending]


class _Topic:
    """One topic's share of the load."""

    def __init__(self, plan: Plan, publisher: Publisher) -> None:
        self.plan = plan
        self.publisher = publisher
        self.sent = 0
        self.confirmed = 0


class _Run:
    """Sends by the plan until its end or `stop`."""

    def __init__(self, settings: PublishSettings, stop: anyio.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._latency = LatencyHistogram()
        self._series: dict[int, Sending] = {}
        self._late_s = 0.0
        self._began_at = 0.0

    async def run(self) -> Offered:
        """Publish everything; returns when all is confirmed, or the time for that is over.

        Raises StartError where the broker does not let it.
        """
        settings, login = self._settings, self._settings.login()
        async with login.client(settings.name) as client:
            await self._see_broker(client)
            topics = [self._topic(client, place) for place in range(len(settings.topic))]
            self._began_at = await _go() if settings.on_go else time.time()
            ready(settings.name, settings.broker)
            async with anyio.create_task_group() as tasks:
                for topic in topics:
                    tasks.start_soon(self._send, topic)
            ended_at = time.time()
            with anyio.move_on_after(FLUSH_S):
                for topic in topics:
                    await self._flush(topic.publisher)
        return Offered(
            name=settings.name,
            due=sum(sending.due for sending in self._series.values()),
            sent=sum(topic.sent for topic in topics),
            confirmed={topic.publisher.topic: topic.confirmed for topic in topics},
            seconds=round(ended_at - self._began_at, 3),
            late_ms=round(1000 * self._late_s, 1),
            latency=self._latency.as_counts(),
            series=[self._series[second] for second in sorted(self._series)],
        )

    def _topic(self, client: Client, place: int) -> _Topic:
        settings = self._settings
        rate = settings.rate / len(settings.topic)
        plan = Plan(
            settings.name, rate, sizes=settings.size, priorities=settings.priorities, seed=settings.seed + place
        )

        def confirm(receipt: Receipt) -> None:
            self._confirm(topic, receipt)

        topic = _Topic(plan, client.publisher(settings.topic[place], window=WINDOW, on_confirm=confirm))
        return topic

    async def _send(self, topic: _Topic) -> None:
        plan, duration = topic.plan, self._settings.duration
        total = plan.count_due(duration) - 1 or 1
        self._note_plan(plan, total)
        while topic.sent < total and not self._stop.is_set():
            elapsed = time.time() - self._began_at
            due = min(plan.count_due(elapsed), total, topic.sent + CHUNK)
            if due <= topic.sent:
                await anyio.sleep(max(PAUSE_S, plan.due_s(topic.sent) - elapsed))
                continue
            self._late_s = max(self._late_s, elapsed - plan.due_s(topic.sent))
            events = [plan.event(number, self._began_at) for number in range(topic.sent, due)]
            self._second().sent += len(events)
            topic.sent = due
            try:
                await topic.publisher.publish_many(events)
            except Refusal as refusal:
                self._note_refusal(topic.publisher.topic, refusal)

    async def _see_broker(self, client: Client) -> None:
        try:
            await client.topics()
        except Refusal as refusal:
            if not refusal.is_retryable:
                raise self._refused(refusal) from refusal

    async def _flush(self, publisher: Publisher) -> None:
        while publisher.unconfirmed:
            try:
                await publisher.flush()
            except Refusal as refusal:
                self._note_refusal(publisher.topic, refusal)

    def _note_refusal(self, topic: str, refusal: Refusal) -> None:
        """Go on without an event. Raises StartError where each later one would be refused, too."""
        if refusal.code in HOPELESS:
            raise self._refused(refusal) from refusal
        logger().warning("an event was refused", topic=topic, reason=str(refusal))

    def _refused(self, refusal: Refusal) -> StartError:
        login = self._settings.login()
        return StartError(f"the broker at {login.address} refuses: {login.reason(refusal)}")

    def _note_plan(self, plan: Plan, total: int) -> None:
        for second in range(int(plan.due_s(total - 1)) + 1):
            due = min(plan.count_due(second + 1), total) - min(plan.count_due(second) if second else 0, total)
            self._series.setdefault(second, Sending(second)).due += due

    def _confirm(self, topic: _Topic, receipt: Receipt) -> None:
        now = time.time() - self._began_at
        for number in range(topic.confirmed, topic.confirmed + receipt.count):
            self._latency.record(1000 * (now - topic.plan.due_s(number)))
        topic.confirmed += receipt.count
        self._second().confirmed += receipt.count

    def _second(self) -> Sending:
        second = max(0, int(time.time() - self._began_at))
        return self._series.setdefault(second, Sending(second))


async def publish(settings: PublishSettings, stop: anyio.Event) -> int:
    """Run, and write what `Offered` says as one JSON line; status 1 where something was not confirmed."""
    offered = await _Run(settings, stop).run()
    sys.stdout.write(msgspec.json.encode(offered).decode() + "\n")
    sys.stdout.flush()
    return 0 if sum(offered.confirmed.values()) == offered.sent else 1


async def _go() -> float:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    word, _, when = (await to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)).partition(" ")
    return float(when) if word == "go" else time.time()


def merged(all_offered: Sequence[Offered]) -> list[Sending]:
    """Add up the seconds of several publishers."""
    series: dict[int, Sending] = {}
    for offered in all_offered:
        for one in offered.series:
            sum_ = series.setdefault(one.second, Sending(one.second))
            sum_.due += one.due
            sum_.sent += one.sent
            sum_.confirmed += one.confirmed
    return [series[second] for second in sorted(series)]
