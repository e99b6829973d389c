"""The blocking client: subscriptions that the caller polls, and exactly-once handshakes with the async client's files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from tests.support.processes import BrokerProcess
from tests.support.scripted_broker import answering, scripted_broker
from tests.support.taking import taken
from tests.support.waiting import until
from tweetwire import BrokerLost, Client, Event, HandshakeFailed, Receipt, Refusal, SyncClient
from tweetwire.client.exactly_once import Spool
from tweetwire.client.exactly_once.spool import Outgoing
from tweetwire.client.exactly_once.steps import PAUSES_S, TRIES
from tweetwire.protocol.errors import SpoolTaken
from tweetwire.protocol.handshakes import State

WITHIN_S = 30.0
STORED = b'{"topic":"t","offset":0,"timestamp":1,"id":"m0","priority":0,"msg":1,"attempt":1}\n'


def numbered(count: int) -> list[Event]:
    return [Event(id=f"m{number}", msg=number) for number in range(count)]


def test_events_are_returned_on_request_until_the_subscription_ends(shared_broker: BrokerProcess, topic: str) -> None:
    with SyncClient(shared_broker.address) as client:
        subscription = client.subscribe(topic, as_="s", from_="earliest", prefetch=10, create=True)
        assert subscription.take(0.0) == []
        client.publish_many(topic, numbered(25))
        seen = []
        for batch in subscription:
            seen += [event.decode() for event in batch]
            subscription.ack(batch)
            if len(seen) == 25:
                client.unsubscribe(subscription, end=True)
        assert seen == list(range(25))
        assert subscription.stale == 0
        assert "s" not in client.stats()["topics"][topic]["subscriptions"]


def test_json_of_several_lines_is_one_message_and_never_another_command(
    shared_broker: BrokerProcess, topic: str
) -> None:
    with SyncClient(shared_broker.address) as client:
        client.publish(topic, Event(id="a", msg=Raw(b'{\n  "n": [1,\r\n 2]\n}')))
        other = f"{topic}.other"
        for evil in (f'{{}}}}\npub {other} {{"id":"x","msg":1', '{"n":\n', "\n"):
            with pytest.raises(ValueError, match="JSON"):
                client.publish_many(topic, [Event(id="b", msg=Raw(evil.encode()))])
        client.publish(topic, Event(id="c", msg=None))
        assert [(event.id, bytes(event.msg)) for event in client.read(topic, 0).events] == [
            ("a", b'{"n":[1,2]}'),
            ("c", b"null"),
        ]
        assert other not in {info.topic for info in client.topics()}


def test_two_subscriptions_have_their_own_events_whatever_is_asked_between(
    shared_broker: BrokerProcess, topic: str
) -> None:
    with SyncClient(shared_broker.address) as client:
        one, other = (client.subscribe(f"{topic}.{name}", as_="s", create=True) for name in ("a", "b"))
        with pytest.raises(ValueError, match=r"already has a subscription to"):
            client.subscribe(f"{topic}.a", as_="t")
        for number in range(20):
            client.publish(f"{topic}.{'ab'[number % 2]}", Event(id=str(number), msg=number))
            client.ping()
        assert [event.decode() for event in taken(other, 10)] == list(range(1, 20, 2))
        assert [event.decode() for event in taken(one, 10)] == list(range(0, 20, 2))


def test_returned_events_are_delivered_again_and_late_acks_are_counted(
    shared_broker: BrokerProcess, topic: str
) -> None:
    with SyncClient(shared_broker.address) as client:
        client.publish_many(topic, numbered(2))
        subscription = client.subscribe(topic, as_="s", from_="earliest", prefetch=2)
        first, second = taken(subscription, 2)
        subscription.nack(first, "not now", code=7)
        (again,) = taken(subscription, 1)
        assert (again.offset, again.attempt) == (first.offset, 2)
        subscription.extend([again, second])
        subscription.ack([again, second])
        assert subscription.stale == 0
        subscription.ack([second])
        subscription.nack(second)
        assert subscription.stale == 2
        with pytest.raises(Refusal, match="stale"):
            subscription.extend([second])


def test_a_durable_one_continues_with_the_next_client(shared_broker: BrokerProcess, topic: str) -> None:
    with SyncClient(shared_broker.address) as client:
        client.publish_many(topic, numbered(3))
        subscription = client.subscribe(topic, as_="s", from_="earliest")
        subscription.ack(taken(subscription, 3)[:1])
    with SyncClient(shared_broker.address) as client:
        assert [event.id for event in taken(client.subscribe(topic, as_="s"), 2)] == ["m1", "m2"]


def test_a_wait_for_events_ends_with_an_error_when_the_broker_ends(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker, SyncClient(broker.address, reconnect_s=0.3) as client:
        subscription = client.subscribe("t", create=True)
        broker.kill()
        with pytest.raises(BrokerLost):
            subscription.take()


def test_a_wait_for_events_ends_with_an_error_when_the_broker_becomes_silent() -> None:
    pings: list[bytes] = []

    def answer(line: bytes) -> bytes:
        if not line.startswith(b"ping"):
            return b"+OK sub t as=s from=0 pending=0 prefetch=200\n"
        pings.append(line)
        # An event arrives together with the reply to the first ping. The second ping has no reply.
        return b"" if len(pings) > 1 else STORED + b"+PONG\n"

    with scripted_broker(answer) as address, SyncClient(address, timeout_s=1.0, reconnect_s=0) as client:
        subscription = client.subscribe("t", as_="s")
        assert subscription.take(0.01) == []
        assert not pings
        assert [event.id for event in subscription.take()] == ["m0"]
        assert len(pings) == 1
        with pytest.raises(BrokerLost):
            subscription.take()
    assert len(pings) == 2


def with_two_events(told: list[bytes], settle: Callable[[], bytes]) -> Callable[[bytes], bytes]:
    """Deliver two events. The lines that settle them are appended to `told`, and `settle` makes the reply."""

    def answer(line: bytes) -> bytes:
        if line.startswith(b"pubcomp"):
            told.append(line)
            return settle()
        if line.startswith(b"sub"):
            return b"+OK sub t as=s from=0 pending=2 prefetch=2\n" + STORED + STORED.replace(b"0", b"1")
        return b"+REL t " + line.split()[2] + b"\n"

    return answer


def test_an_ack_that_the_broker_cannot_settle_now_is_sent_with_the_next_ack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tweetwire.client.exactly_once.steps.PAUSES_S", [0.0] * TRIES)
    told: list[bytes] = []

    def settle() -> bytes:
        return b"-ERR disk full\n" if len(told) <= TRIES else b"+OK comp t " + told[-1].split()[2] + b"\n"

    with (
        scripted_broker(with_two_events(told, settle)) as address,
        SyncClient(address, name="ann", spool=tmp_path) as client,
    ):
        subscription = client.subscribe("t", as_="s", prefetch=2, qos=2)
        first, second = taken(subscription, 2)
        with pytest.raises(HandshakeFailed, match="gave up pubcomp t after 5 tries"):
            subscription.ack([first])
        assert client.unfinished == 2
        subscription.ack([second])
        assert client.unfinished == 0
    assert told == [b"pubcomp t @0\n"] * (TRIES + 1) + [b"pubcomp t @1\n"]


def test_a_permanently_refused_ack_is_reported_once_and_delays_no_other(tmp_path: Path) -> None:
    told: list[bytes] = []

    def settle() -> bytes:
        return b"-ERR forbidden ann\n" if len(told) == 1 else b"+OK comp t @1\n"

    with (
        scripted_broker(with_two_events(told, settle)) as address,
        SyncClient(address, name="ann", spool=tmp_path) as client,
    ):
        subscription = client.subscribe("t", as_="s", prefetch=2, qos=2)
        first, second = taken(subscription, 2)
        with pytest.raises(Refusal, match="forbidden"):
            subscription.ack([first])
        subscription.ack([second])
        assert client.unfinished == 1, "it is kept for the next client"
    assert told == [b"pubcomp t @0\n", b"pubcomp t @1\n"]


def test_a_message_is_stored_once_however_often_it_is_given(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with SyncClient(shared_broker.address, name="ann", spool=tmp_path) as client:
        first = client.publish(topic, Event(id="m0", msg=0), qos=2)
        receipts = client.publish_many(topic, numbered(700) + numbered(5), qos=2)
        assert client.publish(topic, Event(id="m0", msg=0), qos=2) == first == receipts[0]
        assert [receipt.first for receipt in receipts] == [*range(700), *range(5)]
        assert first.durability == "synced"
        assert client.unsent == 0
        assert [event.id for event in client.read(topic, 0).events] == [event.id for event in numbered(700)]


def test_either_client_sends_the_messages_that_the_other_has_left(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with SyncClient(shared_broker.address, name="ann") as client:
        client.command(f'pub2 {topic} {{"id":"m0","priority":0,"msg":0}}')
    states = [State.RECEIVED, State.KEPT, State.RECEIVED]
    spool = Spool(tmp_path, "ann")
    spool.put(
        Outgoing(topic, f"m{number}", f'{{"id":"m{number}","priority":0,"msg":{number}}}', state)
        for number, state in enumerate(states)
    )
    with pytest.raises(SpoolTaken):
        SyncClient(shared_broker.address, name="ann", spool=tmp_path)
    spool.close()
    with SyncClient(shared_broker.address, name="ann", spool=tmp_path) as client:
        assert client.unsent == 0
        assert sorted(event.id for event in client.read(topic, 0).events) == ["m0", "m1", "m2"]


def test_a_message_that_the_broker_refuses_is_given_up_and_the_rest_is_stored(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with SyncClient(shared_broker.address, name="ann", spool=tmp_path) as client:
        client.command(f'schema {topic} {{"type":"integer"}}')
        with pytest.raises(Refusal, match="schema"):
            client.publish_many(topic, [Event(id="a", msg=1), Event(id="b", msg="text"), Event(id="c", msg=2)], qos=2)
        assert client.unsent == 0
        assert [event.id for event in client.read(topic, 0).events] == ["a", "c"]


def test_after_five_tries_an_error_is_raised_and_the_message_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tweetwire.client.exactly_once.steps.PAUSES_S", [pause / 20 for pause in PAUSES_S])
    with (
        scripted_broker(answering({b"pub2": b"-ERR disk full\n"})) as address,
        SyncClient(address, name="ann", spool=tmp_path) as client,
    ):
        with pytest.raises(HandshakeFailed, match=r"gave up pub2 t after 5 tries .disk full.; its handshake is kept"):
            client.publish("t", Event(id="m1", msg=1), qos=2)
        assert client.unsent == 1


def test_a_lost_connection_leaves_the_message_to_the_next_client(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with (
        scripted_broker(answering({b"pub2": None})) as address,
        SyncClient(address, name="ann", spool=tmp_path, reconnect_s=0) as client,
    ):
        with pytest.raises(BrokerLost):
            client.publish(topic, Event(id="m1", msg=1), qos=2)
        assert client.unsent == 1
    with SyncClient(shared_broker.address, name="ann", spool=tmp_path) as client:
        assert [event.id for event in client.read(topic, 0).events] == ["m1"]


def test_events_are_handed_over_once_and_acked_on_this_disk_first(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with SyncClient(shared_broker.address, name="ann", spool=tmp_path) as client:
        client.publish_many(topic, (Event(id=f"m{n}", msg=n, priority=n % 3) for n in range(1500)))
        subscription = client.subscribe(topic, as_="s", from_="earliest", prefetch=1000, qos=2)
        seen: list[str] = []
        for batch in subscription:
            subscription.ack(batch)
            seen += [event.id for event in batch]
            if len(seen) == 1500:
                break
        assert len(set(seen)) == 1500
        assert (client.unfinished, client.stats()["handshakes"]["taken"]) == (0, 0)
        assert client.stats()["topics"][topic]["subscriptions"]["s"]["settled"] == 1500
        subscription.ack(batch)
        assert subscription.stale == len(batch)
        with pytest.raises(ValueError, match="cannot be given back"):
            subscription.nack(batch[0])


@pytest.mark.anyio
async def test_an_event_handed_over_and_not_acked_is_handed_to_the_next_client_as_a_second_attempt(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"as_": "s", "from_": "earliest", "prefetch": 3, "qos": 2}
    with SyncClient(shared_broker.address, name="ann", spool=tmp_path) as client:
        client.publish_many(topic, numbered(3))
        subscription = client.subscribe(topic, **options)
        events = taken(subscription, 3)
        assert [event.attempt for event in events] == [1, 1, 1]
        subscription.ack(events[:1])
        assert client.unfinished == 2
    async with Client(shared_broker.address, name="ann", spool=tmp_path) as after:
        batch = await anext(await after.subscribe(topic, **options))
        assert [(event.id, event.attempt) for event in batch] == [("m1", 2), ("m2", 2)]
    with SyncClient(shared_broker.address, name="ann", spool=tmp_path) as client:
        subscription = client.subscribe(topic, **options)
        events = taken(subscription, 2)
        assert [(event.id, event.attempt) for event in events] == [("m1", 2), ("m2", 2)]
        subscription.ack(events)
        assert client.unfinished == 0
        until(lambda: client.stats()["handshakes"]["taken"] == 0)
        client.unsubscribe(subscription)
        assert list(subscription) == []


def test_an_event_that_is_redelivered_before_it_is_taken_is_taken_once(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with SyncClient(shared_broker.address, name="ann", spool=tmp_path) as client:
        client.publish_many(topic, numbered(700))
        subscription = client.subscribe(topic, as_="s", from_="earliest", prefetch=1000, qos=2, timeout_s=0.5)
        until(lambda: client.stats()["topics"][topic]["subscriptions"]["s"]["redelivered"] > 0)
        events = taken(subscription, 700)
        subscription.ack(events)
        assert sorted(event.id for event in events) == sorted(f"m{number}" for number in range(700))
        assert subscription.take(0) == []
        assert client.unfinished == 0


def test_all_that_has_arrived_is_taken_at_once_so_that_no_timer_runs_meanwhile(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with SyncClient(shared_broker.address, name="ann", spool=tmp_path) as client:
        client.publish_many(topic, numbered(700))
        subscription = client.subscribe(topic, as_="s", from_="earliest", prefetch=1000, qos=2)
        until(lambda: client.stats()["topics"][topic]["subscriptions"]["s"]["in_flight"] == 700)
        assert len(subscription.take(WITHIN_S)) == 700


def test_more_messages_than_the_broker_holds_at_once_are_stored(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with SyncClient(shared_broker.address, name="ann", spool=tmp_path) as client:
        large = [Event(id=f"m{number}", msg="x" * 1_000_000) for number in range(70)]
        assert [receipt.first for receipt in client.publish_many(topic, large, qos=2)] == list(range(70))


def test_a_refused_event_leaves_each_later_command_its_own_reply(shared_broker: BrokerProcess, topic: str) -> None:
    bad = Event(id="x" * 300, msg=0)
    with SyncClient(shared_broker.address) as client:
        for events in ([bad, *numbered(2)], [*numbered(1), bad, bad, *numbered(2)]):
            with pytest.raises(Refusal, match="id"):
                client.publish_many(topic, events)
            with pytest.raises(Refusal, match="id"):
                client.publish(topic, bad)
        assert client.publish(topic, Event(id="last", msg=0)).first == 5
        assert topic in {info.topic for info in client.topics()}


def test_each_answer_is_reported_in_the_order_of_the_events(shared_broker: BrokerProcess, topic: str) -> None:
    answers: list[int | str] = []

    def note(answer: Receipt | Refusal) -> None:
        answers.extend(["bad"] if isinstance(answer, Refusal) else range(answer.first, answer.last + 1))

    bad = Event(id="x" * 300, msg=0)
    with SyncClient(shared_broker.address) as client:
        with pytest.raises(Refusal, match="id"):
            client.publish_many(topic, [*numbered(3), bad, *numbered(2), bad, *numbered(1)], answered=note)
        assert answers == [0, 1, 2, "bad", 3, 4, "bad", 5]
        receipts = client.publish_many(topic, numbered(2000), answered=note)
        assert sum(receipt.count for receipt in receipts) == 2000
        assert answers[8:] == list(range(6, 2006))


def test_an_ack_refused_for_another_reason_is_not_counted_as_late() -> None:
    subscribed = b"+OK sub t as=s from=0 pending=1 prefetch=2\n" + STORED
    with (
        scripted_broker(answering({b"sub": subscribed, b"nack": b"-ERR disk full\n"})) as address,
        SyncClient(address) as client,
    ):
        subscription = client.subscribe("t", as_="s")
        with pytest.raises(Refusal, match="disk full"):
            subscription.nack(taken(subscription, 1)[0], "not now")
        assert subscription.stale == 0


def test_a_closed_client_raises_an_error(shared_broker: BrokerProcess, topic: str) -> None:
    with SyncClient(shared_broker.address) as client:
        subscription = client.subscribe(topic, create=True)
    with pytest.raises(BrokerLost):
        subscription.take()


def test_without_a_folder_and_a_name_exactly_once_is_refused(
    shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    with SyncClient(shared_broker.address) as client:
        with pytest.raises(ValueError, match="qos=2 needs a folder"):
            client.publish(topic, Event(id="m", msg=1), qos=2)
        with pytest.raises(ValueError, match="qos=2 needs a folder"):
            client.subscribe(topic, as_="s", create=True, qos=2)
        assert (client.unsent, client.unfinished) == (0, 0)
    with SyncClient(shared_broker.address, spool=tmp_path) as client, pytest.raises(ValueError, match="as_="):
        client.subscribe(topic, create=True, qos=2)
