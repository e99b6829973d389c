"""Retention: the segments that it removes and keeps, and the report of subscriptions that it overtakes."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from broker.log import MemoryLog, Span, first_kept
from tests.broker.core.harness import Core
from tests.support.processes import BrokerProcess
from tweetwire import Client, Event
from tweetwire.protocol.retention import Retention

SPANS = [Span(10, 100, 1000), Span(20, 100, 2000), Span(30, 100, 3000)]


@pytest.mark.parametrize(
    ("retention", "needed", "kept"),
    [
        (Retention(), None, 0),
        (Retention(), 30, 0),
        (Retention(age_ms=2500), None, 10),
        (Retention(age_ms=1500), None, 20),
        (Retention(age_ms=1), None, 30),
        (Retention(age_ms=1), 15, 10),
        (Retention(age_ms=1), 5, 0),
        (Retention(bytes=250), None, 10),
        (Retention(bytes=251), None, 0),
        (Retention(bytes=0), None, 30),
        (Retention(bytes=0), 20, 20),
        (Retention(is_settled=True), None, 0),
        (Retention(is_settled=True), 9, 0),
        (Retention(is_settled=True), 29, 20),
        (Retention(is_settled=True), 35, 30),
        (Retention(at_most_bytes=300), 0, 10),
        (Retention(at_most_bytes=350), 0, 0),
        (Retention(at_most_bytes=0), 0, 30),
        (Retention(is_settled=True, at_most_bytes=250), 5, 10),
        (Retention(is_settled=True, age_ms=1), None, 30),
    ],
)
def test_retention_chooses_the_events_that_may_be_removed(retention: Retention, needed: int | None, kept: int) -> None:
    assert first_kept(SPANS, 350, retention, lambda: needed, 3501) == kept


class Kept:
    """A topic ``t`` whose log has small parts, and a session that publishes to it."""

    def __init__(self) -> None:
        self.core = Core()
        self.core.logs.by_topic["t"] = MemoryLog(span_bytes=400)
        self.publisher = self.core.connect()

    def publish(self, count: int, priority: int = 0) -> None:
        for n in range(count):
            self.core.type(self.publisher, f'pub t {{"id":"{n}","priority":{priority},"msg":"{"x" * 40}"}}')

    def retain(self, options: str) -> str:
        (reply,) = self.core.type(self.publisher, f"retain t {options}")
        return reply

    def forget(self) -> dict[str, int]:
        """Apply retention, as a server does once a second. Return the subscriptions that it overtook."""
        topic = self.core.broker.topics["t"]
        if topic.retention.age_ms is not None:
            topic.log.end_older(self.core.now_ms - topic.retention.age_ms)
        overtaken: dict[str, int] = {}
        for topic, forgetting in self.core.broker.forget_old(self.core.now_ms).items():
            topic.log.forget_below(forgetting.below)
            overtaken |= forgetting.overtaken
        self.core.carry_out()
        return overtaken

    @property
    def earliest(self) -> int:
        return self.core.broker.topics["t"].log.earliest

    def figures(self, name: str) -> dict[str, Any]:
        (reply,) = self.core.type(self.publisher, "stats")
        figures: dict[str, Any] = json.loads(reply.split(" ", 2)[2])["topics"]["t"]["subscriptions"][name]
        return figures


@pytest.fixture
def kept() -> Kept:
    return Kept()


def offsets(lines: list[str]) -> list[int]:
    return [json.loads(line)["offset"] for line in lines if line.startswith("{")]


def test_without_a_rule_no_event_is_removed(kept: Kept) -> None:
    kept.publish(50)
    kept.core.pass_time(1000)
    assert kept.forget() == {}
    assert kept.earliest == 0


def test_the_command_shows_changes_and_removes_retention(kept: Kept) -> None:
    kept.publish(1)
    assert kept.retain("") == "+OK retain t age=none bytes=none settled=no at_most=none"
    assert kept.retain("age=7d bytes=10GiB") == "+OK retain t age=7d bytes=10GiB settled=no at_most=none"
    assert (
        kept.retain("settled=yes at_most=1.5GiB age=none")
        == "+OK retain t age=none bytes=10GiB settled=yes at_most=1.5GiB"
    )
    kept.core.restart()
    kept.publisher = kept.core.connect()
    assert kept.retain("") == "+OK retain t age=none bytes=10GiB settled=yes at_most=1.5GiB"
    kept.core.restart(is_folded=True)
    kept.publisher = kept.core.connect()
    assert kept.retain("").endswith("at_most=1.5GiB")
    for wrong in ("age=7", "age=0s", "bytes=many", "settled=perhaps", "at_most=1PB", "colour=red", "age=-1s"):
        assert kept.retain(wrong).startswith("-ERR bad_arguments")
    (reply,) = kept.core.type(kept.publisher, "retain nothing age=1d")
    assert reply == "-ERR unknown_topic there is no topic nothing"


def test_old_events_are_removed_and_reading_begins_after_them(kept: Kept) -> None:
    kept.publish(10)
    kept.core.pass_time(60)
    kept.publish(10)
    kept.retain("age=30s")
    kept.forget()
    assert 0 < kept.earliest <= 10
    earliest = kept.earliest
    reply, *lines = kept.core.type(kept.publisher, "read t 0 limit=3")
    assert reply == f"+OK read t 3 next={earliest + 3}"
    assert offsets(lines) == list(range(earliest, earliest + 3))
    reader = kept.core.connect()
    reply, *lines = kept.core.type(reader, "sub t from=earliest prefetch=100")
    assert reply.startswith(f"+OK sub t as=conn-{reader.number} from={earliest} pending={20 - earliest}")
    assert offsets(lines) == list(range(earliest, 20))
    kept.core.pass_time(60)
    kept.forget()
    assert kept.earliest == 20


def test_a_durable_subscription_keeps_events_that_it_has_not_settled(kept: Kept) -> None:
    kept.publish(20)
    reader = kept.core.connect()
    kept.core.type(reader, "sub t as=s from=earliest prefetch=5")
    kept.retain("bytes=0")
    assert kept.forget() == {}
    assert kept.earliest == 0
    kept.core.type(reader, "ack t " + " ".join(f"@{n}" for n in range(1, 5)))
    kept.forget()
    assert kept.earliest == 0
    kept.core.type(reader, "ack t @0")
    kept.core.type(reader, "ack t " + " ".join(f"@{n}" for n in range(5, 10)))
    kept.forget()
    assert 0 < kept.earliest <= 10


def test_events_that_all_durable_subscriptions_have_settled_are_removed(kept: Kept) -> None:
    kept.publish(20)
    kept.retain("settled=yes")
    kept.forget()
    assert kept.earliest == 0
    fast, slow = kept.core.connect(), kept.core.connect()
    kept.core.type(fast, "sub t as=fast from=earliest prefetch=100")
    kept.core.type(slow, "sub t as=slow from=earliest prefetch=100")
    kept.core.type(fast, "ack t " + " ".join(f"@{n}" for n in range(20)))
    kept.forget()
    assert kept.earliest == 0
    kept.core.type(slow, "ack t " + " ".join(f"@{n}" for n in range(20)))
    kept.forget()
    assert kept.earliest >= 15


def test_a_dead_event_stays_since_it_may_be_redriven(kept: Kept) -> None:
    kept.publish(20)
    reader = kept.core.connect()
    kept.core.type(reader, "sub t as=s from=earliest prefetch=100 tries=1")
    kept.core.type(reader, "nack t @2", "ack t " + " ".join(f"@{n}" for n in range(20)))
    kept.retain("settled=yes")
    kept.forget()
    assert kept.earliest == 0
    assert offsets(kept.core.type(reader, "redrive t as=s @2")) == [2]
    kept.core.type(reader, "ack t @2")
    kept.forget()
    assert kept.earliest >= 15


def test_an_overtaken_subscription_gets_a_notice_and_continues_after_the_removed_events(kept: Kept) -> None:
    kept.publish(15)
    kept.publish(15, priority=3)
    reader = kept.core.connect()
    kept.core.type(reader, "sub t as=s from=earliest prefetch=2")
    before = kept.figures("s")["pending"]
    kept.retain("at_most=1KiB")
    overtaken = kept.forget()
    earliest = kept.earliest
    assert earliest > 15
    # Two events of priority 3 are in flight. The reader may settle them, although the log begins after them.
    assert overtaken == {"s": kept.figures("s")["overtaken"]}
    assert kept.figures("s")["pending"] == before - overtaken["s"] == 30 - earliest
    (reply,) = kept.core.type(kept.publisher, "explain t @3 as=s")
    explained = json.loads(reply.split(" ", 4)[4])
    assert (explained["state"], explained["earliest"]) == ("behind_retention", earliest)
    received = kept.core.type(reader, "ack t @15 @16")
    assert received[0] == "+OK ack t 2"
    assert offsets(received) == [earliest, earliest + 1]
    kept.core.restart()
    reader = kept.core.connect()
    rest = offsets(kept.core.type(reader, "sub t as=s prefetch=100"))
    assert rest == list(range(earliest, 30))


def test_dead_paused_and_returned_events_are_overtaken_too(kept: Kept) -> None:
    kept.publish(30)
    reader = kept.core.connect()
    kept.core.type(reader, "sub t as=s from=earliest prefetch=4 tries=2 strikes=nack backoff=1h")
    kept.core.type(reader, "nack t @0", "nack t @1")
    other = kept.core.connect()
    kept.core.type(other, "sub t as=u from=earliest prefetch=2 tries=1")
    kept.core.type(other, "nack t @0")
    kept.core.disconnect(reader)
    kept.retain("at_most=1KiB")
    kept.forget()
    figures = kept.figures("s")
    assert (figures["delayed"], figures["pending"]) == (0, 30 - kept.earliest)
    assert kept.figures("u")["dead"] == 0
    assert kept.core.broker.topics["t"].subscriptions["s"].attempts == {}
    kept.core.pass_time(7200)
    received = offsets(kept.core.type(kept.core.connect(), "sub t as=s prefetch=100"))
    assert received == list(range(kept.earliest, 30))


def test_an_event_in_flight_that_returns_after_retention_removed_it_is_counted_and_not_stuck(kept: Kept) -> None:
    kept.publish(30)
    reader = kept.core.connect()
    kept.core.type(reader, "sub t as=s from=earliest prefetch=2")
    # Drop the events from memory, so that redelivered events must be read from the log.
    kept.core.broker.topics["t"].recent.drop_oldest(1 << 30)
    kept.retain("at_most=1KiB")
    kept.forget()
    before = kept.figures("s")["overtaken"]
    received = kept.core.type(reader, "nack t @0", "nack t @1")
    assert kept.figures("s")["overtaken"] == before + 2
    assert offsets(received) == [kept.earliest, kept.earliest + 1]


def test_duplicates_are_recognised_after_their_events_were_removed(kept: Kept) -> None:
    for n in range(30):
        line = f'pub t {{"id":"{n}","msg":"{"x" * 40}","producer":"p","sequence":{n}}}'
        kept.core.type(kept.publisher, line)
    kept.retain("bytes=0")
    kept.forget()
    assert kept.earliest > 15
    kept.core.restart(is_folded=True)
    publisher = kept.core.connect()
    assert kept.core.type(publisher, 'pub t {"id":"x","msg":1,"producer":"p","sequence":4}') == ["+OK dup t 29"]


@pytest.mark.anyio
async def test_files_are_removed_and_reported_offsets_stay_correct_over_kills(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker", "--segment-bytes", "20KiB") as broker:
        folder = broker.data_dir / "topics" / "t"
        async with Client(broker.address) as client:
            subscription = await client.subscribe("t", as_="s", create=True, prefetch=200)
            await client.command("retain t settled=yes")
            async with client.publisher("t") as publisher:
                for first in range(0, 2000, 100):
                    events = (
                        Event(id=str(n), msg="x" * 50, producer="p", sequence=n) for n in range(first, first + 100)
                    )
                    await publisher.publish_many(events)
                    await publisher.flush()
            settled = 0
            while settled < 2000:
                batch = await anext(subscription)
                await subscription.ack(batch)
                settled += len(batch)
            with anyio.fail_after(60):
                while len(list(folder.glob("*.jsonl"))) > 1:
                    await anyio.sleep(0.05)
            (topic,) = [one for one in await client.topics() if one.topic == "t"]
            assert 0 < topic.earliest < topic.next == 2000
        broker.kill()
        broker.start()
        async with Client(broker.address) as client:
            (topic,) = [one for one in await client.topics() if one.topic == "t"]
            assert topic.next == 2000
            again = await client.publish("t", Event(id="0", msg=0, producer="p", sequence=0))
            assert again.is_duplicate
            assert (await client.publish("t", Event(id="new", msg=0))).first == 2000
