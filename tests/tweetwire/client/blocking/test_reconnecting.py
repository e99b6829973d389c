"""The blocking client reconnects inside its next call: the commands that it sends again, and when it gives up."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import pytest

from tests.support.processes import BrokerProcess
from tests.support.scripted_broker import answering, scripted_broker
from tests.support.taking import taken
from tests.support.waiting import until
from tweetwire import BrokerLost, Event, SyncClient

WITHIN_S = 30.0


def restart(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


def numbered(count: int, first: int = 0) -> list[Event]:
    return [Event(id=f"m{number}", msg=number, producer="p", sequence=number) for number in range(first, first + count)]


def test_numbered_publishes_around_a_restart_are_stored_once_and_in_order(broker: BrokerProcess) -> None:
    def events() -> Iterator[Event]:
        for number, event in enumerate(numbered(3000)):
            if number in {900, 2100}:
                restart(broker)
            yield event

    with SyncClient(broker.address) as client:
        receipts = client.publish_many("t", events())
        assert sum(receipt.count for receipt in receipts) == 3000
        page = client.read("t", 0, limit=5000)
        assert [event.id for event in page.events] == [event.id for event in numbered(3000)]
        assert client.connects == 3


def test_a_publish_whose_reply_was_lost_is_sent_again(broker: BrokerProcess) -> None:
    with SyncClient(broker.address) as client:
        client.publish("t", numbered(1)[0])
        restart(broker)
        assert client.publish("t", numbered(1, 1)[0]).first == 1
        restart(broker)
        assert [event.id for event in client.read("t", 0).events] == ["m0", "m1"]
        assert client.stats("t")


def test_subscriptions_continue_after_a_restart_with_the_unacked_events(broker: BrokerProcess) -> None:
    with SyncClient(broker.address, name="consumer") as client, SyncClient(broker.address) as other:
        durable = client.subscribe("t", as_="s", from_="earliest", create=True)
        anonymous = client.subscribe("u", from_="earliest", create=True)
        for topic in ("t", "u"):
            other.publish_many(topic, numbered(4))
        durable.ack(taken(durable, 4)[:3])
        assert len(taken(anonymous, 4)) == 4
        restart(broker)
        for topic in ("t", "u"):
            other.publish_many(topic, numbered(1, 4))
        again = taken(durable, 2)
        assert [event.id for event in again] == ["m3", "m4"]
        assert [event.id for event in taken(anonymous, 1)] == ["m4"]
        durable.ack(again)
        assert durable.stale == 0
        assert client.stats("t")["topics"]["t"]["subscriptions"]["s"]["pending"] == 0


def test_an_ack_that_is_lost_with_its_connection_is_not_sent_again_and_its_event_is_delivered_again(
    broker: BrokerProcess,
) -> None:
    with SyncClient(broker.address) as client:
        client.publish_many("t", numbered(2))
        subscription = client.subscribe("t", as_="s", from_="earliest")
        events = taken(subscription, 2)
        restart(broker)
        subscription.ack(events)
        assert subscription.stale == 0
        again = taken(subscription, 2)
        assert [event.id for event in again] == ["m0", "m1"]
        subscription.ack(again)
        assert subscription.take(0.2) == []


def test_exactly_once_continues_over_a_restart_without_another_client(broker: BrokerProcess, tmp_path: Path) -> None:
    with SyncClient(broker.address, name="ann", spool=tmp_path) as client:
        subscription = client.subscribe("t", as_="s", from_="earliest", prefetch=10, create=True, qos=2)
        client.publish("t", Event(id="m0", msg=0), qos=2)
        restart(broker)
        client.publish("t", Event(id="m1", msg=1), qos=2)
        events = taken(subscription, 2)
        restart(broker)
        subscription.ack(events)
        assert sorted(event.id for event in events) == ["m0", "m1"]
        assert (client.unsent, client.unfinished, subscription.take(0.2)) == (0, 0, [])


def test_a_call_gives_up_at_its_deadline_and_the_next_one_connects_again(broker: BrokerProcess) -> None:
    with SyncClient(broker.address, reconnect_s=0.3) as client:
        subscription = client.subscribe("t", create=True)
        broker.kill()
        began = monotonic()
        for call in (client.ping, subscription.take, lambda: client.publish("t", numbered(1)[0])):
            with pytest.raises(BrokerLost):
                call()
        assert monotonic() - began >= 3 * 0.3
        broker.start()
        client.ping()
        assert client.read("t", 0).events == [], "what a call gave up is not sent again"
        client.publish("t", Event(id="after", msg=1))
        assert [event.id for event in taken(subscription, 1)] == ["after"]


def test_without_time_to_reconnect_a_lost_connection_is_final_and_only_raised(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    with SyncClient(broker.address, reconnect_s=0) as client:
        restart(broker)
        for _ in range(2):
            with pytest.raises(BrokerLost):
                client.ping()
        assert client.connects == 1
    assert caplog.text == ""


def test_waiting_for_events_for_a_while_ends_in_time_although_the_broker_is_away(broker: BrokerProcess) -> None:
    with SyncClient(broker.address) as client:
        subscription = client.subscribe("t", create=True)
        broker.kill()
        assert subscription.take(0.3) == []
        assert subscription.take(0) == []
        broker.start()
        assert subscription.take(0.5) == []
        client.publish("t", Event(id="m", msg=1))
        assert [event.id for event in taken(subscription, 1)] == ["m"]


def test_a_client_that_was_interrupted_in_a_call_connects_again_in_the_next_one(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SyncClient(broker.address) as client:
        client.publish_many("t", numbered(3))
        subscription = client.subscribe("t", as_="s", from_="earliest")
        with monkeypatch.context() as patch:
            patch.setattr(client._link, "_receive", _interrupt)
            with pytest.raises(KeyboardInterrupt):
                client.publish("t", Event(id="interrupted", msg=1))
        client.checkpoint("t", "mark", "here")
        position = client.last("t", "mark")
        assert position is not None
        assert position.checkpoint == "here"
        assert [event.id for event in taken(subscription, 3)[:3]] == ["m0", "m1", "m2"]
        assert client.connects == 2


def test_events_that_wait_in_the_client_are_delivered_again_after_a_restart(broker: BrokerProcess) -> None:
    with SyncClient(broker.address) as client, SyncClient(broker.address) as other:
        subscription = client.subscribe("t", create=True)
        other.publish_many("t", numbered(2))
        events = taken(subscription, 2)
        other.publish_many("t", numbered(2, 2))
        until(lambda: client.stats("t")["topics"]["t"]["subscriptions"][subscription.known_as]["in_flight"] == 4)
        client.ping()
        restart(broker)
        client.ping()
        events += taken(subscription, 2)
        assert [event.id for event in events] == ["m0", "m1", "m2", "m3"]


def test_waiting_for_events_ends_in_time_if_the_connection_is_lost_during_a_ping() -> None:
    script = answering({b"sub": b"+OK sub t as=s from=0 pending=0 prefetch=200\n", b"ping": None})
    with scripted_broker(script) as address, SyncClient(address, timeout_s=0.3) as client:
        subscription = client.subscribe("t", as_="s")
        with ThreadPoolExecutor(1) as pool:
            taking = pool.submit(subscription.take, 0.6)
            try:
                assert taking.result(WITHIN_S / 3) == []
            finally:
                client.close()


def test_a_call_whose_command_ends_each_connection_gives_up_at_its_deadline() -> None:
    script = answering({b"last": None})
    with scripted_broker(script, clients=100) as address, SyncClient(address, reconnect_s=0.5) as client:
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(client.last, "t", "p")
            try:
                with pytest.raises(BrokerLost):
                    asking.result(WITHIN_S / 3)
            finally:
                client.close()
        assert client.connects > 1


def _interrupt() -> None:
    raise KeyboardInterrupt
