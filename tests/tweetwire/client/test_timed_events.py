"""Both clients publish delayed and expiring events: one by one, many together, and exactly once."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.processes import BrokerProcess
from tests.tweetwire.client.either_client import Opener, taken
from tweetwire import Event, Refusal, SyncClient

pytestmark = pytest.mark.anyio

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("timed") / "broker") as process:
        yield process


async def test_delayed_events_are_delivered_after_the_others_and_expired_ones_not_at_all(
    opened: Opener, broker: BrokerProcess, topic: str
) -> None:
    async with opened(broker.address) as client:
        await client.publish_many(
            topic,
            [
                Event(id="late", msg=1, delay="600ms"),
                Event(id="never", msg=2, delay="1ms", expires="2ms"),
                Event(id="first", msg=3),
                Event(id="hour", msg=4, due=datetime.now(UTC) + timedelta(hours=1)),
            ],
        )
        await client.call("publish", topic, Event(id="soon", msg=5, delay="200ms", expires="1h"))
        subscription = await client.subscribe(topic, as_="s", from_="earliest")
        events = await taken(subscription, 3)
        assert [event.id for event in events] == ["first", "soon", "late"]
        first, soon, _ = events
        assert (first.due, first.expires) == (Event(id="", msg=0).due, Event(id="", msg=0).expires)
        assert isinstance(soon.due, int)
        assert isinstance(soon.expires, int)
        assert soon.expires - soon.due == HOUR_MS - 200
        await subscription.ack(events)
        explained = await client.call("command", f"explain {topic} @3 as=s")
        assert '"state":"delayed"' in explained


async def test_a_wrong_time_is_refused_with_a_sentence(opened: Opener, broker: BrokerProcess, topic: str) -> None:
    async with opened(broker.address) as client:
        for event, text in (
            (Event(id="1", msg=1, delay="tomorrow"), "write it like 500ms"),
            (Event(id="1", msg=1, delay="400d"), "the longest is 365d"),
            (Event(id="1", msg=1, delay="5m", due=1), "exclude each other"),
            (Event(id="1", msg=1, delay="5m", expires="5m"), "later than the due time"),
            (Event(id="1", msg=1, due=datetime(2100, 1, 1, tzinfo=UTC)), "more than 365 days ahead"),
        ):
            with pytest.raises(Refusal, match=text) as caught:
                await client.call("publish", topic, event)
            assert caught.value.code == "bad_event"


async def test_a_message_of_the_handshake_is_delayed_too(
    opened: Opener, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    async with opened(broker.address, name="timed", spool=tmp_path) as client:
        await client.call("publish", topic, Event(id="1", msg=1, delay="1h", expires="2h"), qos=2)
    with SyncClient(broker.address) as reader:
        (event,) = reader.read(topic, 0).events
        assert isinstance(event.due, int)
        assert isinstance(event.expires, int)
        assert event.expires - event.due == HOUR_MS
        assert reader.stats()["topics"][topic]["scheduled"] == 1
