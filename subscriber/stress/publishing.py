"""``python -m subscriber publish`` publishes events at a fixed rate, even if the broker is slow, and reports the result.

The stress run starts several of these as separate processes, so that publishing does not slow down receiving. With
``--on-go``, the program connects, prints ``ready``, and begins when it reads ``go`` and the time on stdin.
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

from subscriber.stress.latency import LatencyHistogram
from subscriber.stress.load import Plan
from tweetwire import Client, Receipt, Refusal
from tweetwire.client.aio import Publisher
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.kinds import Bytes, Seconds
from tweetwire.runtime.program import ClientSettings, Name, logger, ready, settings_config

__all__ = ["Offered", "PublishSettings", "Sending", "merged", "publish"]

CHUNK: Final = 256
WINDOW: Final = 200_000
"""The most unconfirmed events. At this limit, events that are due wait, and count as late."""
PAUSE_S: Final = 0.001
FLUSH_S: Final = 30.0
HOPELESS: Final = frozenset({"bad_name", "forbidden", "unauthenticated"})


class PublishSettings(ClientSettings):
    """Offer events at a fixed rate, and report how late they were sent and confirmed."""

    model_config = settings_config("python -m subscriber publish")

    topic: list[Name] = Field(min_length=1, description="topic to publish to")
    rate: float = Field(1000.0, gt=0, description="events a second, over all topics")
    duration: Seconds = Field("10s", gt=0, validate_default=True, description="duration of the run")
    size: list[Bytes] = Field(
        ["200"],
        min_length=1,
        validate_default=True,
        description="length of msg; of several values, one is drawn for each event",
    )
    priorities: Annotated[int, Field(ge=1, le=256)] = Field(1, description="priorities 0 … n - 1, drawn")
    name: Name = Field("load", description="name of the producer; each run needs a name that is new to the topics")
    seed: int = Field(0, description="seed of the random choices")
    on_go: bool = Field(False, description="wait for a line 'go <seconds since 1970>' on stdin")


class Sending(Struct):
    """One second of a run: the number of events due, sent and confirmed in it."""

    second: int
    due: int = 0
    sent: int = 0
    confirmed: int = 0


class Offered(Struct, kw_only=True):
    """The result of a publisher. `late_ms` is the largest delay between the planned time and the sending of an event.

    `confirmed` counts the events that the broker stored, by topic. `latency` is the histogram of the time from when an event
    was due until it was confirmed.
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
    """Sends events by the plan until its end or `stop`."""

    def __init__(self, settings: PublishSettings, stop: anyio.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._latency = LatencyHistogram()
        self._series: dict[int, Sending] = {}
        self._late_s = 0.0
        self._began_at = 0.0

    async def run(self) -> Offered:
        """Publish all events, and return once all are confirmed or the time for that is over.

        Raises:
            StartError: the broker refuses the login or the topic.
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
        """Continue without a refused event. Raises StartError if the broker would also refuse all later events."""
        if refusal.code in HOPELESS:
            raise self._refused(refusal) from refusal
        logger().warning("event was refused", topic=topic, reason=str(refusal))

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
    """Run, and print the result as one JSON line. Return 1 if an event was not confirmed, else 0."""
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
    """Add up the results of several publishers, second by second."""
    series: dict[int, Sending] = {}
    for offered in all_offered:
        for one in offered.series:
            sum_ = series.setdefault(one.second, Sending(one.second))
            sum_.due += one.due
            sum_.sent += one.sent
            sum_.confirmed += one.confirmed
    return [series[second] for second in sorted(series)]
