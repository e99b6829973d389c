"""After an operation was cancelled at any place, the client is usable: each command has its own reply, and no ack is lost."""

import os
import random
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from tests.support.processes import BrokerProcess
from tests.tweetwire.client.cancelling import Interrupted, cancelled_at, interrupted_at
from tweetwire import BrokerError, BrokerLost, Client, Event, Refusal, StoredEvent, Subscription, SyncClient

pytestmark = pytest.mark.anyio

CANCELLATIONS = int(os.environ.get("TWEETWIRE_TEST_CANCELLATIONS", "300"))
LINES_APART = 7 if CANCELLATIONS <= 300 else 1
WITHIN_S = 60.0
AWAITS_MAX = 60

Use = Callable[[Client], Coroutine[Any, Any, Any]]


async def whole_subscription(client: Client) -> None:
    await client.publish("t", Event(id="more", msg=1))
    subscription = await client.subscribe("t", as_="s", prefetch=5, from_="earliest", begins=True)
    batch = await anext(subscription)
    await subscription.mark_begun(batch)
    await subscription.extend(batch[:1])
    await subscription.ack(batch[:1])
    await subscription.nack(batch[-1], "later")
    await client.unsubscribe(subscription)


async def anonymous_subscription(client: Client) -> None:
    await client.publish("t", Event(id="more", msg=1))
    subscription = await client.subscribe("t", from_="earliest")
    await anext(subscription)
    await client.unsubscribe(subscription)


async def exactly_once_subscription(client: Client) -> None:
    await client.publish("t", Event(id="more", msg=1))
    subscription = await client.subscribe("t", as_="once", from_="earliest", qos=2)
    await subscription.ack((await anext(subscription))[:1])
    await client.unsubscribe(subscription)


async def pipelined(client: Client) -> None:
    async with client.publisher("t", window=2) as publisher:
        await publisher.publish_many([Event(id=f"p{number}", msg=number) for number in range(6)])
        await publisher.publish(Event(id="p", msg=1))
        await publisher.flush()


USES: dict[str, Use] = {
    "publish": lambda client: client.publish("t", Event(id="1", msg=1)),
    "publish once": lambda client: client.publish("t", Event(id=f"o{random.random()}", msg=1), qos=2),
    "publisher": pipelined,
    "subscription": whole_subscription,
    "anonymous subscription": anonymous_subscription,
    "exactly-once subscription": exactly_once_subscription,
    "read": lambda client: client.read("t", 0, limit=2),
    "last": lambda client: client.last("t", "p"),
    "checkpoint": lambda client: client.checkpoint("t", "p", "here"),
    "topics": lambda client: client.topics(),
    "stats": lambda client: client.stats("t"),
    "command": lambda client: client.command("ping"),
    "ask": lambda client: client.ask(b"ping\n"),
    "ping": lambda client: client.ping(),
}


@pytest.mark.parametrize("name", list(USES))
async def test_a_client_is_usable_after_a_cancellation_at_each_await(
    name: str, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    async with Client(shared_broker.address, name="ann", spool=tmp_path) as client:
        await client.publish("t", Event(id="0", msg=0))
        for number in range(1, AWAITS_MAX):
            with anyio.fail_after(WITHIN_S):
                is_done, _ = await cancelled_at(number, lambda: USES[name](client))
                # Repeat the use in full, and then a command whose reply no other command can have.
                await free_of_subscriptions(client)
                await USES[name](client)
                await client.checkpoint("t", "mark", f"mark{number}")
                position = await client.last("t", "mark")
            assert position is not None
            assert position.checkpoint == f"mark{number}"
            if is_done:
                break
        else:
            raise AssertionError(f"{name} has more than {AWAITS_MAX} awaits")
        assert client.connects == 1


async def free_of_subscriptions(client: Client) -> None:
    """End the subscriptions that the cancelled use may have made."""
    for subscription in client._engine.subscriptions:
        await client.unsubscribe(cast(Subscription, subscription))


async def test_entering_may_be_cancelled_at_each_await_and_leaving_still_sends_the_acks(
    shared_broker: BrokerProcess, topic: str
) -> None:
    async def enter_and_leave() -> None:
        async with Client(shared_broker.address) as client:
            subscription = await client.subscribe(topic, as_="s", from_="earliest", prefetch=1)
            batch = await anext(subscription)
            acked.append(batch[0].offset)
            await subscription.ack(batch)

    acked: list[int] = []
    async with Client(shared_broker.address) as client:
        await client.publish(topic, Event(id="first", msg=1))
        for number in range(1, AWAITS_MAX):
            await client.publish(topic, Event(id="more", msg=1))
            is_done, _ = await cancelled_at(number, enter_and_leave)
            if is_done:
                break
        assert is_done
        unsettled = await client.command(f"unsettled {topic} as=s")
        assert f"[[{max(acked) + 1}," in unsettled or '"offsets":[]' in unsettled
        standing = (await client.stats())["topics"][topic]["subscriptions"]["s"]
        assert (standing["settled"], standing["redelivered"]) == (len(acked), 0)


class Storm:
    """One client that is used and cancelled at random, and the checks that it must pass afterwards."""

    def __init__(self, client: Client, seed: int) -> None:
        self.cancelled = 0
        self.acked: set[int] = set()
        self.wrong: list[str] = []
        self._client = client
        self._random = random.Random(seed)
        self._subscription: Subscription | None = None
        self._held: list[StoredEvent] = []
        self._number = 0

    async def run(self, cancellations: int) -> None:
        """Use the client until it was cancelled `cancellations` times."""
        uses: list[Callable[[], Awaitable[None]]] = [
            self._publish,
            self._pipeline,
            self._read,
            self._checkpoint,
            self._command,
            self._take_and_ack,
            self._take_and_ack,
            self._unsubscribe,
        ]
        while self.cancelled < cancellations:
            use = self._random.choice(uses)
            with anyio.fail_after(WITHIN_S):
                is_done, _ = await cancelled_at(self._random.randint(1, 6), lambda: self._used(use))  # noqa: B023
            self.cancelled += not is_done

    async def _used(self, use: Callable[[], Awaitable[None]]) -> None:
        try:
            await use()
        except Refusal as refusal:
            # A cancelled call may already have ended this subscription, or the one that delivered these events.
            if refusal.code not in {"not_subscribed", "stale"}:
                self.wrong.append(str(refusal))

    def _check(self, is_right: bool, what: str) -> None:
        if not is_right:
            self.wrong.append(what)

    async def _publish(self) -> None:
        self._number += 1
        id_ = f"single{self._number}"
        receipt = await self._client.publish("storm", Event(id=id_, msg=self._number))
        page = await self._client.read("storm", receipt.first, limit=1)
        self._check(page.events[0].id == id_, f"{id_} is {page.events[0].id}")

    async def _pipeline(self) -> None:
        confirmed = 0

        def confirm(receipt: Any) -> None:
            nonlocal confirmed
            confirmed += receipt.count

        async with self._client.publisher("storm", window=8, on_confirm=confirm) as publisher:
            await publisher.publish_many([Event(id="run", msg=number) for number in range(20)])
        self._check(confirmed == 20, f"{confirmed} of 20 confirmed")

    async def _read(self) -> None:
        offset = self._random.randint(0, 50)
        page = await self._client.read("storm", offset, limit=3)
        self._check(
            [event.offset for event in page.events] == [offset, offset + 1, offset + 2], f"read {offset}: {page}"
        )

    async def _checkpoint(self) -> None:
        producer, self._number = f"p{self._random.randint(0, 9)}", self._number + 1
        await self._client.checkpoint("storm", producer, f"{producer} {self._number}")
        position = await self._client.last("storm", producer)
        self._check(
            position is not None and position.checkpoint == f"{producer} {self._number}", f"{producer}: {position}"
        )

    async def _command(self) -> None:
        reply = await self._client.command("explain storm @3 as=watch")
        self._check(reply.startswith("+OK explain storm @3 "), reply)
        self._check("watch" in (await self._client.stats())["topics"]["storm"]["subscriptions"], "stats")

    async def _take_and_ack(self) -> None:
        await self._client.publish("storm", Event(id="more", msg=1))
        if self._subscription is None:
            self._subscription = await self._client.subscribe(
                "storm", as_="s", prefetch=4, from_="earliest", timeout_s=3600
            )
        events = await anext(self._subscription)
        # Note the acks before the call: a cancelled call still sends the commands that it had queued.
        self.acked |= {event.offset for event in events}
        await self._subscription.ack(events)

    async def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await self._client.unsubscribe(subscription)


async def test_cancellations_at_random_awaits_give_no_wrong_reply_and_lose_no_ack(
    shared_broker: BrokerProcess, record_property: Callable[[str, object], None]
) -> None:
    async with Client(shared_broker.address) as client:
        async with client.publisher("storm") as publisher:
            await publisher.publish_many([Event(id=f"begin{number}", msg=number) for number in range(60)])
        await client.unsubscribe(await client.subscribe("storm", as_="watch", from_="earliest"))
        storm = Storm(client, seed=7)
        await storm.run(CANCELLATIONS)
        assert storm.wrong == []
        assert client.connects == 1
    async with Client(shared_broker.address) as client:
        import msgspec

        reply = await client.command("unsettled storm as=s limit=100000")
        unsettled = msgspec.json.decode(reply.split(" ", 3)[3])["offsets"]
        lost = {offset for offset in storm.acked for first, last in unsettled if first <= offset <= last}
        assert lost == set()
        assert (await client.stats())["topics"]["storm"]["subscriptions"]["s"]["settled"] >= len(storm.acked) > 0
    record_property("cancelled", storm.cancelled)
    record_property("acked", len(storm.acked))


def test_a_blocking_client_that_is_interrupted_anywhere_gives_its_own_replies_or_none(
    shared_broker: BrokerProcess, topic: str
) -> None:
    uses: list[Callable[[SyncClient], Any]] = [
        lambda client: client.publish(topic, Event(id="1", msg=1)),
        lambda client: client.publish_many(topic, [Event(id="1", msg=1)] * 3, window=1),
        lambda client: client.read(topic, 0, limit=2),
        lambda client: client.last(topic, "p"),
        sync_subscription(topic),
    ]
    for use in uses:
        number = 1
        while not survived(shared_broker.address, topic, use, number):
            number += LINES_APART
        assert number > 5


def sync_subscription(topic: str) -> Callable[[SyncClient], None]:
    def use(client: SyncClient) -> None:
        subscription = client.subscribe(topic, as_="s", from_="earliest", prefetch=3)
        subscription.ack(subscription.take(10)[:1])
        client.unsubscribe(subscription)

    return use


def survived(address: str, topic: str, use: Callable[[SyncClient], Any], number: int) -> bool:
    """Interrupt a use before its `number`-th line, and check that the client still works. Return whether it ended before."""
    with SyncClient(address) as client:
        client.publish_many(topic, [Event(id=f"m{place}", msg=place) for place in range(3)])
        is_done, _ = interrupted_at(number, lambda: use(client))
        try:
            client.checkpoint(topic, "mark", f"mark{number}")
            position = client.last(topic, "mark")
            assert position is not None
            assert position.checkpoint == f"mark{number}"
        except BrokerLost:
            assert not is_done
    return is_done


def test_a_client_does_not_swallow_an_interruption() -> None:
    assert not issubclass(Interrupted, Exception | BrokerError)
