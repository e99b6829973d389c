"""Counters become rates, and an unknown rate is None."""

from typing import Any

import anyio
import pytest

from dashboard.history import History, counter_of
from dashboard.tail import TopicTail
from tweetwire.protocol.events import StoredEvent, decode_stored
from tweetwire.protocol.replies import Page


def stats(**topics: int) -> dict[str, Any]:
    return {
        "topics": {
            name: {"next": count, "subscriptions": {"s": {"pending": count // 10, "in_flight": 1}}}
            for name, count in topics.items()
        }
    }


def test_a_rate_is_what_came_in_the_time_between_looks() -> None:
    history = History()
    for second in range(4):
        history.note(1000.0 + 2 * second, stats(tweets=100 * second))
    assert history.rate_now(counter_of("tweets", "next")) == 50
    assert history.topic_rates()["tweets"] == [(1_002_000, 50.0), (1_004_000, 50.0), (1_006_000, 50.0)]


def test_one_look_gives_no_rate_and_without_a_look_there_is_no_error() -> None:
    history = History()
    assert (history.latest, history.topic_rates(), history.backlogs()) == (None, {}, {})
    history.note(1000.0, stats(tweets=5))
    assert history.rate_now(counter_of("tweets", "next")) == 0
    assert history.topic_rates() == {"tweets": []}


def test_a_late_topic_and_a_log_that_starts_over_have_no_rates_then() -> None:
    history = History()
    history.note(1.0, stats())
    history.note(2.0, stats(tweets=900))
    history.note(3.0, stats(tweets=5))
    history.note(4.0, stats(tweets=25))
    assert history.rates(counter_of("tweets", "next")) == []
    assert history.rate_now(counter_of("tweets", "next")) == 0


def test_backlogs_are_of_the_subscriptions_there_are_now() -> None:
    history = History(looks_max=2)
    for second in range(3):
        history.note(float(second), stats(tweets=100 * second))
    assert history.backlogs() == {"tweets · s": [(1000, 11), (2000, 21)]}


def stored(offset: int) -> StoredEvent:
    return decode_stored(b'{"topic":"t","offset":%d,"timestamp":1,"id":"a","priority":0,"msg":1}' % offset)


class Log:
    """A log that counts how often it is read."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, int]] = []

    async def read(self, start: int, limit: int) -> Page:
        self.reads.append((start, limit))
        return Page([stored(offset) for offset in range(start, start + limit)], start + limit)


@pytest.mark.anyio
async def test_a_tail_reads_each_event_once_for_all_who_look() -> None:
    log, tail = Log(), TopicTail(3)
    assert [event.offset for event in await tail.up_to(0, 10, log.read)] == [7, 8, 9]
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(tail.up_to, 0, 12, log.read)
    assert [event.offset for event in await tail.up_to(0, 12, log.read)] == [9, 10, 11]
    assert log.reads == [(7, 3), (10, 2)]


@pytest.mark.anyio
async def test_a_tail_starts_over_with_its_log() -> None:
    log, tail = Log(), TopicTail(3)
    await tail.up_to(0, 10, log.read)
    assert [event.offset for event in await tail.up_to(0, 2, log.read)] == [0, 1]
    assert await tail.up_to(0, 0, log.read) == []
