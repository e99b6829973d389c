"""Subscriptions of both clients to a pattern of topics: acks by topic, topics that come and go, and a broker that is lost."""

from pathlib import Path

import pytest

from tests.support.processes import BrokerProcess
from tests.tweetwire.client.either_client import EitherClient, EitherSubscription, Opener
from tweetwire import Event, Refusal, StoredEvent, SubscriptionEnded

pytestmark = pytest.mark.anyio


@pytest.fixture
def word(request: pytest.FixtureRequest) -> str:
    """The first word of the topics of a test."""
    return "".join(filter(str.isalnum, str(request.node.name)))[-60:]


async def publish(client: EitherClient, topic: str, *ids: str) -> None:
    for id_ in ids:
        await client.call("publish", topic, Event(id=id_, msg=id_))


async def take(subscription: EitherSubscription, count: int) -> list[StoredEvent]:
    found: list[StoredEvent] = []
    while len(found) < count:
        batch = await subscription.take()
        assert batch, f"only {found}"
        found += batch
    return found


def places(events: list[StoredEvent]) -> set[tuple[str, str]]:
    return {(event.topic, event.id) for event in events}


async def test_acks_and_nacks_go_to_the_topic_of_each_event(
    opened: Opener, shared_broker: BrokerProcess, word: str
) -> None:
    async with opened(shared_broker.address) as client:
        await publish(client, f"{word}.a", "old")
        subscription = await client.subscribe(f"{word}.*", as_="s")
        await publish(client, f"{word}.a", "1", "2")
        await publish(client, f"{word}.later", "3")
        events = await take(subscription, 3)
        assert places(events) == {(f"{word}.a", "1"), (f"{word}.a", "2"), (f"{word}.later", "3")}
        await subscription.extend(events)
        (failed,) = [event for event in events if event.id == "3"]
        await subscription.nack(failed, "broken")
        (again,) = await take(subscription, 1)
        assert (again.topic, again.id, again.attempt) == (f"{word}.later", "3", 2)
        await subscription.ack([*(event for event in events if event is not failed), again])
        stats = (await client.call("stats"))["topics"]
        for topic, settled in ((f"{word}.a", 2), (f"{word}.later", 1)):
            figures = stats[topic]["subscriptions"]["s"]
            assert (figures["settled"], figures["in_flight"], figures["pending"]) == (settled, 0, 0)
        assert subscription.stale == 0


async def test_a_topic_and_a_pattern_that_matches_it_exclude_each_other_in_one_client(
    opened: Opener, shared_broker: BrokerProcess, word: str
) -> None:
    async with opened(shared_broker.address) as client:
        await publish(client, f"{word}.a", "1")
        pattern = await client.subscribe(f"{word}.*", as_="s")
        for topic in (f"{word}.a", f"{word}.>"):
            with pytest.raises(ValueError, match="already has a subscription"):
                await client.subscribe(topic, as_="other")
        other = await client.subscribe(f"{word}.*.*", as_="other")
        await publish(client, f"{word}.a.b", "2")
        await publish(client, f"{word}.a", "3")
        assert places(await take(other, 1)) == {(f"{word}.a.b", "2")}
        assert places(await take(pattern, 1)) == {(f"{word}.a", "3")}


async def test_a_dropped_topic_leaves_the_subscription_and_the_others_stay(
    opened: Opener, shared_broker: BrokerProcess, word: str
) -> None:
    async with opened(shared_broker.address) as client:
        await publish(client, f"{word}.a", "1")
        subscription = await client.subscribe(f"{word}.*", as_="s", prefetch=1)
        await client.call("drop", f"{word}.a")
        await publish(client, f"{word}.b", "2")
        (event,) = await take(subscription, 1)
        assert (event.topic, event.id) == (f"{word}.b", "2")


async def test_the_end_of_the_pattern_ends_the_subscription_of_every_client(
    opened: Opener, shared_broker: BrokerProcess, word: str
) -> None:
    async with opened(shared_broker.address) as client, opened(shared_broker.address) as other:
        mine = await client.subscribe(f"{word}.*", as_="s")
        theirs = await other.subscribe(f"{word}.*", as_="s")
        await client.unsubscribe(mine, end=True)
        with pytest.raises(SubscriptionEnded, match="ended the subscription"):
            await theirs.take()
        await client.subscribe(f"{word}.*", as_="t")
        await other.call("end", f"{word}.*", "t")


async def test_wrong_patterns_are_refused(opened: Opener, shared_broker: BrokerProcess) -> None:
    async with opened(shared_broker.address) as client:
        for pattern in ("a.>.b", "orders*", "..", "*" * 65_536):
            with pytest.raises(Refusal, match="bad_name"):
                await client.subscribe(pattern, as_="s")
        with pytest.raises(Refusal, match="bad_arguments create"):
            await client.subscribe("a.*", as_="s", create=True)


async def test_after_a_killed_broker_every_event_of_every_topic_comes(opened: Opener, tmp_path: Path) -> None:
    """The client reconnects by itself. Acked events are not delivered again; all others are, and new topics too."""
    with BrokerProcess(tmp_path / "broker") as broker:
        async with opened(broker.address) as client, opened(broker.address) as publisher:
            subscription = await client.subscribe("o.*", as_="s", prefetch=4)
            await publish(publisher, "o.a", "1", "2")
            await publish(publisher, "o.b", "3", "4")
            first = await take(subscription, 4)
            await subscription.ack(first[:2])
            # These replies come when their records are on the disk. The earlier records of the acks are then there, too.
            await client.call("pause", "o.a", "s")
            await client.call("resume", "o.a", "s")
            broker.kill()
            broker.start()
            await publish(publisher, "o.c", "5")
            await publish(publisher, "o.a", "6")
            expected = places(first[2:]) | {("o.c", "5"), ("o.a", "6")}
            found: list[StoredEvent] = []
            while places(found) != expected:
                batch = await subscription.take()
                assert batch, f"{places(found)} of {expected}"
                assert places(batch) <= expected
                await subscription.ack(batch)
                found += batch
            assert len(found) == 4


async def test_a_pattern_without_a_name_continues_after_a_restart(opened: Opener, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        async with opened(broker.address) as client, opened(broker.address) as publisher:
            await publish(publisher, "o.a", "old")
            subscription = await client.subscribe("o.*", prefetch=4)
            await publish(publisher, "o.a", "1")
            assert places(await take(subscription, 1)) == {("o.a", "1")}
            broker.kill()
            broker.start()
            await client.call("stats")
            await publish(publisher, "o.b", "2")
            assert places(await take(subscription, 1)) == {("o.b", "2")}
