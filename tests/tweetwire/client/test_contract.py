"""The promises of both clients, with a real broker and with one that breaks its protocol."""

import math
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.processes import BrokerProcess
from tests.support.scripted_broker import scripted_broker
from tests.tweetwire.client.either_client import EitherClient, Opener, taken
from tweetwire import BrokerLost, Client, ClientClosed, Event, ProtocolError, Refusal, SubscriptionEnded, SyncClient
from tweetwire.client.exactly_once import Spool
from tweetwire.client.exactly_once.spool import Incoming
from tweetwire.protocol.handshakes import State

pytestmark = pytest.mark.anyio

SHORT_S = 0.3
STORED = b'{"topic":"t","offset":0,"timestamp":1,"id":"m0","priority":0,"msg":1}\n'
SUBSCRIBED = b"+OK sub t as=s from=0 pending=1 prefetch=200\n"


def numbered(count: int) -> list[Event]:
    return [Event(id=f"m{number}", msg=number) for number in range(count)]


async def figures(client: EitherClient, topic: str, name: str) -> dict[str, Any]:
    stats = await client.call("stats")
    return dict(stats["topics"][topic]["subscriptions"][name])


async def test_published_events_are_confirmed_in_order_and_can_be_read(
    opened: Opener, shared_broker: BrokerProcess, topic: str
) -> None:
    async with opened(shared_broker.address) as client:
        first = await client.call("publish", topic, Event(id="first", msg={"n": [1, None]}))
        receipts = await client.publish_many(topic, numbered(1200))
        assert (first.first, receipts[0].first, receipts[-1].last) == (0, 1, 1200)
        assert sum(receipt.count for receipt in receipts) == 1200
        page = await client.call("read", topic, 1199)
        assert ([event.id for event in page.events], page.next) == (["m1198", "m1199"], 1201)
        assert topic in {info.topic for info in await client.call("topics")}
        assert await client.call("command", "ping") == "+PONG"


async def test_leaving_sends_the_last_acks_and_gives_back_the_rest_without_a_failed_try(
    opened: Opener, shared_broker: BrokerProcess, topic: str
) -> None:
    async with opened(shared_broker.address) as client:
        await client.publish_many(topic, numbered(60))
        subscription = await client.subscribe(topic, as_="s", from_="earliest", prefetch=60, tries=1)
        events = await taken(subscription, 60)
        await subscription.ack(events[:45])
        await subscription.nack(events[45], "not this one")
    async with opened(shared_broker.address) as client:
        standing = await figures(client, topic, "s")
        assert (standing["settled"], standing["pending"], standing["dead"]) == (45, 14, 1)
        again = await taken(await client.subscribe(topic, as_="s"), 14)
        assert [(event.id, event.attempt) for event in again] == [(f"m{number}", 1) for number in range(46, 60)]


async def test_leaving_by_an_exception_does_the_same_and_raises_it_as_it_is(
    opened: Opener, shared_broker: BrokerProcess, topic: str
) -> None:
    with pytest.raises(KeyError, match="a fault of the application"):
        async with opened(shared_broker.address) as client:
            await client.publish_many(topic, numbered(9))
            subscription = await client.subscribe(topic, as_="s", from_="earliest", tries=1)
            await subscription.ack((await taken(subscription, 9))[:5])
            raise KeyError("a fault of the application")
    async with opened(shared_broker.address) as client:
        standing = await figures(client, topic, "s")
        assert (standing["settled"], standing["pending"], standing["dead"]) == (5, 4, 0)


async def test_leaving_finishes_the_handshakes_of_acked_events(
    opened: Opener, shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    async with opened(shared_broker.address, name="ann", spool=tmp_path) as client:
        await client.publish_many(topic, numbered(20))
        subscription = await client.subscribe(topic, as_="s", from_="earliest", prefetch=20, qos=2)
        await subscription.ack((await taken(subscription, 20))[:15])
    assert client.own.unfinished == 5
    async with opened(shared_broker.address, name="ann", spool=tmp_path) as client:
        again = await taken(await client.subscribe(topic, as_="s", qos=2), 5)
        assert [event.id for event in again] == [f"m{number}" for number in range(15, 20)]


async def test_leaving_waits_for_a_broker_that_does_not_answer_no_longer_than_its_deadline() -> None:
    def answer(line: bytes) -> bytes:
        return SUBSCRIBED + STORED if line.startswith(b"sub") else b""

    with scripted_broker(answer, is_polite=False) as address:
        with anyio.fail_after(20):
            async with Client(address, leave_timeout_s=0.2) as client:
                subscription = await client.subscribe("t", as_="s")
                await subscription.ack(await anext(subscription))


@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("last", ("t", "p\nunsub t as=keep")),
        ("last", ("t p", "p")),
        ("checkpoint", ("t", "p", "a\nping")),
        ("checkpoint", ("t", "p\tq", "a")),
        ("checkpoint", ("t", "p", "a\rb")),
        ("read", ("t\n", 0)),
        ("read", ("t", "0 limit=1")),
        ("subscribe", ("t as=x",)),
        ("publish", ("t\nping", Event(id="1", msg=1))),
        ("publish", ("t", Event(id="1\ud800", msg=1))),
        ("publish", ("t", Event(id="1", msg=math.nan))),
        ("publish", ("t", Event(id="1", msg={"a": [math.inf]}))),
        ("create", ("t age=1d",)),
        ("drop", ("t if_empty",)),
        ("purge", ("t", "0 before=1")),
        ("seek", ("t", "s to=0", 0)),
        ("seek", ("t", "s", "0\n")),
        ("pause", ("t", "s\n")),
        ("resume", ("t", "")),
        ("end", ("t", "s end")),
        ("discard", ("t", "s", "some")),
        ("discard", ("t", "s", ["all"])),
        ("discard", ("t", "s", ["@1"])),
        ("discard", ("t", "s", ["a b"])),
        ("command", ("topics\nping",)),
        ("command", ("quit",)),
    ],
)
async def test_an_argument_that_is_not_a_word_is_refused_before_anything_is_sent(
    opened: Opener, shared_broker: BrokerProcess, method: str, args: tuple[Any, ...]
) -> None:
    async with opened(shared_broker.address) as client:
        kept = await client.subscribe("kept", as_="keep", create=True)
        with pytest.raises(ValueError, match=r".+"):
            await client.call(method, *args)
        assert await client.call("last", "kept", "p") is None
        await client.call("publish", "kept", Event(id="on", msg=1))
        assert [event.id for event in await taken(kept, 1)] == ["on"]
        await client.unsubscribe(kept, end=True)


@pytest.mark.parametrize(
    "options", [{"from_": "0 create"}, {"prefetch": "5 create"}, {"timeout_s": math.nan}, {"as_": ""}]
)
async def test_a_subscription_with_a_wrong_argument_leaves_the_topic_free(
    opened: Opener, shared_broker: BrokerProcess, topic: str, options: dict[str, Any]
) -> None:
    async with opened(shared_broker.address) as client:
        with pytest.raises(ValueError, match=next(iter(options)).rstrip("_").replace("from", "offset")):
            await client.subscribe("free", create=True, **options)
        with pytest.raises(Refusal, match="unknown_topic"):
            await client.subscribe(f"{topic}.none")
        await client.unsubscribe(await client.subscribe("free", create=True))
        await client.unsubscribe(await client.subscribe("free"))


@pytest.mark.parametrize("values", [[math.nan], [1, {"deep": (None, -math.inf)}]])
async def test_a_value_that_json_cannot_express_is_never_published(
    opened: Opener, shared_broker: BrokerProcess, topic: str, tmp_path: Path, values: list[Any]
) -> None:
    async with opened(shared_broker.address, name="ann", spool=tmp_path) as client:
        with pytest.raises(ValueError, match="JSON cannot express"):
            await client.publish_many(topic, [*numbered(3), Event(id="bad", msg=values)])
        with pytest.raises(ValueError, match="JSON cannot express"):
            await client.call("publish", topic, Event(id="bad", msg=values), qos=2)
        assert client.own.unsent == 0
        await client.call("publish", topic, Event(id="good", msg=1))
        assert [event.id for event in (await client.call("read", topic, 0)).events] == ["good"]


async def test_a_subscription_that_another_client_ends_raises_an_error_and_the_others_continue(
    opened: Opener, shared_broker: BrokerProcess, topic: str
) -> None:
    async with opened(shared_broker.address) as client, opened(shared_broker.address, name="boss") as boss:
        other = await client.subscribe(f"{topic}.other", as_="s", create=True)
        subscription = await client.subscribe(topic, as_="s", from_="earliest", create=True)
        await boss.publish_many(topic, numbered(5))
        held = await taken(subscription, 5)
        await boss.unsubscribe(await boss.subscribe(topic, as_="s"), end=True)
        with pytest.raises(SubscriptionEnded, match="boss ended the subscription") as raised:
            await subscription.take()
        assert (raised.value.topic, raised.value.name) == (topic, "s")
        await subscription.ack(held)
        await client.call("ping")
        assert subscription.stale == 5
        await client.call("publish", f"{topic}.other", Event(id="on", msg=1))
        assert [event.id for event in await taken(other, 1)] == ["on"]
        assert await (await client.subscribe(topic, as_="s")).take(SHORT_S) == []


async def test_a_long_reason_in_any_script_is_cut_and_the_event_is_delivered_again(
    opened: Opener, shared_broker: BrokerProcess, topic: str
) -> None:
    async with opened(shared_broker.address) as client:
        await client.call("publish", topic, Event(id="m", msg=1))
        subscription = await client.subscribe(topic, as_="s", from_="earliest", tries=9)
        for attempt, reason in enumerate(("猫" * 20_000, "caf\udcff" * 9000, '"' * 30_000), 1):
            (event,) = await taken(subscription, 1)
            assert event.attempt == attempt
            await subscription.nack(event, reason, code="ü" * 3000, trace=f"begin{reason}end")
        (event,) = await taken(subscription, 1)
        assert (event.attempt, subscription.stale) == (4, 0)


async def test_late_acks_are_counted_by_events_and_other_refusals_are_not(opened: Opener) -> None:
    settled = iter([b"+OK ack t 1\n", b"-ERR stale gone\n", b"-ERR disk full\n", b"-ERR stale gone\n"])

    def answer(line: bytes) -> bytes:
        if line.startswith(b"sub"):
            return SUBSCRIBED + b"".join(STORED.replace(b":0,", b":%d," % number, 1) for number in range(3))
        return next(settled) if line.startswith((b"ack", b"nack")) else b"+PONG\n"

    with scripted_broker(answer) as address:
        async with opened(address) as client:
            subscription = await client.subscribe("t", as_="s")
            events = await taken(subscription, 3)
            await subscription.ack(events)
            await subscription.ack(events[:1])
            with suppress(Refusal):
                await subscription.nack(events[0], "why")
            await subscription.nack(events[0], "two words")
            await client.call("ping")
            assert subscription.stale == 2 + 1 + 1
            assert getattr(subscription.own, "refused", 1) == 1


Ask = Callable[[EitherClient], Any]


@pytest.mark.parametrize(
    ("reply", "ask"),
    [
        (b"+OK last t other null\n", lambda client: client.call("last", "t", "p")),
        (b"+OK last t p {\n", lambda client: client.call("last", "t", "p")),
        (b'+OK last t p {"offset":"x"}\n', lambda client: client.call("last", "t", "p")),
        (b"+PONG\n", lambda client: client.call("last", "t", "p")),
        (b"+OK create t old\n", lambda client: client.call("create", "t")),
        (b"+OK purge t x\n", lambda client: client.call("purge", "t")),
        (b"+OK seek t as=s from=\n", lambda client: client.call("seek", "t", "s", 0)),
        (b"+OK seek t as=other from=0 pending=0\n", lambda client: client.call("seek", "t", "s", 0)),
        (b"+OK discard t\n", lambda client: client.call("discard", "t", "s", "all")),
        (b"+OK stats [1]\n", lambda client: client.call("stats")),
        (b"+OK stats\n", lambda client: client.call("stats")),
        (b"+OK topics \xff\n", lambda client: client.call("topics")),
        (b"+OK read t 9 next=9\n", lambda client: client.call("read", "t", 0, limit=5)),
        (b"+OK read t 1 next=1\n{\n", lambda client: client.call("read", "t", 0)),
        (b"+OK read t 1 next=1\n" + STORED[:-4] + b"\n", lambda client: client.call("read", "t", 0)),
        (b"+OK pub t 0-1 synced\n", lambda client: client.call("publish", "t", Event(id="1", msg=1))),
        (b"+OK pub u 0 synced\n", lambda client: client.publish_many("t", numbered(1))),
        (b"+OK pub t x synced\n", lambda client: client.publish_many("t", numbered(1))),
        (b"+OK sub t\n", lambda client: client.subscribe("t")),
        (b"HTTP/1.1 400 Bad Request\n", lambda client: client.call("ping")),
        (b"\n", lambda client: client.call("ping")),
        (b"-NO\n", lambda client: client.call("ping")),
        (b"x" * 30_000, lambda client: client.call("ping")),
        (b"{" + b"x" * 30_000, lambda client: client.call("ping")),
    ],
)
async def test_a_broker_that_breaks_its_protocol_is_one_error_and_nothing_waits_forever(
    opened: Opener, reply: bytes, ask: Ask
) -> None:
    with scripted_broker(lambda line: reply) as address:
        async with opened(address, line_bytes_max=20_000) as client:
            with pytest.raises(ProtocolError) as raised, anyio.fail_after(30):
                await ask(client)
            assert len(str(raised.value)) < 500


async def test_a_broken_protocol_in_a_handshake_is_the_same_error(opened: Opener, tmp_path: Path) -> None:
    spool = Spool(tmp_path, "ann")
    spool.put(Incoming("t", "s", offset, STORED.decode().strip(), State.ARRIVED) for offset in range(2))
    spool.close()
    with scripted_broker(lambda line: b"+REL other @0\n") as address:
        async with opened(address, name="ann", spool=tmp_path) as client:
            with pytest.raises(ProtocolError), anyio.fail_after(30):
                await client.subscribe("t", as_="s", qos=2)
            assert client.own.unfinished == 2


@pytest.mark.parametrize("line", [b"nonsense\n", b"{" * 3000 + b"\n", STORED[:-9] + b"\n", b"+PONG\n", b"\xff\n"])
async def test_an_iterator_raises_a_protocol_error_and_keeps_at_most_the_prefetch(opened: Opener, line: bytes) -> None:
    flood = b"".join(STORED.replace(b":0,", b":%d," % number, 1) for number in range(50))

    def answer(said: bytes) -> bytes:
        return SUBSCRIBED + flood if said.startswith(b"sub") else b"+PONG\n" + line

    with scripted_broker(answer) as address:
        async with opened(address) as client:
            subscription = await client.subscribe("t", as_="s", prefetch=8)
            await client.call("ping")
            with pytest.raises(ProtocolError), anyio.fail_after(30):
                while True:
                    events = await subscription.take()
                    assert [event.offset for event in events] == list(range(42, 50))


async def test_a_client_that_was_left_cannot_be_used_again(
    opened: Opener, shared_broker: BrokerProcess, topic: str
) -> None:
    async with opened(shared_broker.address) as client:
        subscription = await client.subscribe(topic, create=True)
    for use in (
        lambda: client.call("ping"),
        lambda: client.call("publish", topic, Event(id="1", msg=1)),
        lambda: client.subscribe(topic),
        lambda: client.unsubscribe(subscription),
        subscription.take,
    ):
        with pytest.raises(ClientClosed, match="make another one"), anyio.fail_after(30):
            await use()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_forked_process_is_refused_and_its_parent_continues(
    opened: Opener, shared_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    async with opened(shared_broker.address, name="ann", spool=tmp_path) as client:
        subscription = await client.subscribe(topic, as_="s", create=True)
        assert _unrefused_in_a_fork(client.own, subscription.own, topic) == 0
        await client.call("publish", topic, Event(id="1", msg=1), qos=2)
        assert [event.id for event in await taken(subscription, 1)] == ["1"]


def _unrefused_in_a_fork(client: Any, subscription: Any, topic: str) -> int:
    """Use and leave a client in a forked process. Return how many of the uses were not refused."""
    child = os.fork()
    if not child:
        os._exit(_unrefused(client, subscription, topic))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _unrefused(client: Any, subscription: Any, topic: str) -> int:
    refused = 0
    uses: list[Callable[[], Any]] = [
        client.ping,
        lambda: client.publish(topic, Event(id="x", msg=1)),
        lambda: client.publish(topic, Event(id="x", msg=1), qos=2),
        lambda: client._spool.put([]),
        lambda: client.subscribe("other", create=True),
        lambda: subscription.extend([_event()]),
        lambda: subscription.ack([_event()]),
    ]
    for use in uses:
        try:
            outcome = use()
            if hasattr(outcome, "send"):
                outcome.send(None)
        except RuntimeError as error:
            refused += "fork" in str(error)
        except BaseException:  # noqa: BLE001 — only counted
            continue
    if isinstance(client, SyncClient):
        client.close()
    else:
        try:
            client.__aexit__(None, None, None).send(None)
        except StopIteration:
            return len(uses) - refused
        return 99
    return len(uses) - refused


def _event() -> Any:
    from tweetwire.protocol.events import decode_stored

    return decode_stored(STORED)


def test_two_threads_on_one_blocking_client_are_refused(shared_broker: BrokerProcess, topic: str) -> None:
    refused: list[str] = []
    with SyncClient(shared_broker.address) as client:
        subscription = client.subscribe(topic, create=True)
        is_waiting = threading.Event()

        def wait() -> None:
            is_waiting.set()
            subscription.take(10.0)

        thread = threading.Thread(target=wait)
        thread.start()
        is_waiting.wait(30)
        while not refused:
            try:
                client.publish(topic, Event(id="1", msg=1))
            except RuntimeError as error:
                refused.append(str(error))
        with SyncClient(shared_broker.address) as other:
            other.publish(topic, Event(id="end", msg=1))
        thread.join(30)
        client.ping()
    assert "make another client for each thread" in refused[0]


def test_an_iterator_of_events_may_not_use_the_client_that_publishes_them_and_its_fault_leaves_it_usable(
    shared_broker: BrokerProcess, topic: str
) -> None:
    with SyncClient(shared_broker.address) as client:

        def events() -> Any:
            yield from numbered(600)
            client.ping()

        with pytest.raises(RuntimeError, match="call of publish_many that runs this iterator"):
            client.publish_many(topic, events())
        assert client.last(topic, "p") is None
        assert client.publish(topic, Event(id="next", msg=1)).first >= 500


def test_a_client_that_was_not_entered_and_one_of_another_loop_or_thread_are_refused_with_the_remedy(
    shared_broker: BrokerProcess, topic: str
) -> None:
    client = Client(shared_broker.address)
    for use in (
        client.ping,
        lambda: client.subscribe(topic),
        lambda: client.publisher(topic).publish(Event(id="1", msg=1)),
    ):
        with pytest.raises(RuntimeError, match="async with Client"):
            anyio.run(use)

    async def use_in_a_thread() -> None:
        async with Client(shared_broker.address) as client:
            subscription = await client.subscribe(topic, create=True)
            publisher = client.publisher(topic)
            for use in (
                client.ping,
                lambda: publisher.publish(Event(id="1", msg=1)),
                lambda: anext(subscription),
                lambda: subscription.ack([_event()]),
            ):
                with pytest.raises(RuntimeError, match=r"another event loop or thread; .* anyio\.from_thread"):
                    await anyio.to_thread.run_sync(anyio.run, _call, use)
            await client.ping()
            with pytest.raises(RuntimeError, match="was entered before"):
                await client.__aenter__()

    anyio.run(use_in_a_thread)


async def _call(use: Callable[[], Any]) -> Any:
    return await use()


def test_a_client_whose_loop_has_ended_is_refused_on_the_next_one(shared_broker: BrokerProcess) -> None:
    client = Client(shared_broker.address)

    async def enter() -> None:
        client._link.owner.enter()

    anyio.run(enter)
    with pytest.raises(RuntimeError, match="another event loop"):
        anyio.run(client.ping)


async def test_a_publisher_that_is_left_by_an_exception_reports_the_number_of_unconfirmed_events(
    shared_broker: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client(shared_broker.address) as client:
        with pytest.raises(KeyError) as raised:
            async with client.publisher(topic) as publisher:
                await publisher.publish_many(numbered(300))
                await publisher.flush()
                for event in numbered(20):
                    await publisher.publish(event)
                raise KeyError
        assert raised.value.__notes__ == [
            f"20 events to topic {topic} are unconfirmed; the broker may or may not store them"
        ]
        assert publisher.unconfirmed == 20
        async with client.publisher(topic) as other:
            await other.publish(Event(id="1", msg=1))
        assert publisher.unconfirmed == 0
    assert "unconfirmed=20" in caplog.text


async def test_a_publisher_that_is_left_with_nothing_unconfirmed_logs_nothing(
    shared_broker: BrokerProcess, topic: str
) -> None:
    async with Client(shared_broker.address) as client:
        with pytest.raises(KeyError) as raised:
            async with client.publisher(topic) as publisher:
                await publisher.publish_many(numbered(3))
                await publisher.flush()
                raise KeyError
        assert not hasattr(raised.value, "__notes__")


async def test_a_lost_broker_raises_or_is_found_again_but_nothing_hangs(opened: Opener, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        async with opened(broker.address) as client:
            await client.publish_many("t", numbered(2))
            broker.kill()
            broker.start()
            try:
                with anyio.fail_after(60):
                    assert len((await client.call("read", "t", 0)).events) == 2
            except BrokerLost:
                assert isinstance(client.own, SyncClient)
