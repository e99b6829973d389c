"""The async client: what one asks of a broker, and the subscriptions that one has there."""

import ssl
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import anyio
import msgspec
from anyio.abc import TaskGroup

from broker.client.commands import Command, HelloCommand, PublishCommand, ResumeCommand, SubscribeCommand
from broker.client.link import Link
from broker.client.publisher import OnConfirm, Publisher
from broker.client.subscription import Start, Subscription
from broker.errors import BrokerError
from broker.events import Event, StoredEvent, encode_event
from broker.failures import Cause
from broker.handshakes import ExactlyOnceSubscription, Publishing, Spool
from broker.protocol import replies
from broker.protocol.replies import Page, ProducerPosition, Receipt, TopicInfo

__all__ = ["Client"]


class Client:
    """A connection to the broker at `address` that comes back by itself; use it in an ``async with`` block.

    Entering raises BrokerUnreachable if no broker answers within `connect_timeout_s` seconds, and at once where the two do
    not agree on TLS. Afterwards a lost connection is made anew with growing pauses for as long as it takes, subscriptions go
    on, and every command without a reply is sent again: a publish whose reply was lost may then be stored twice, unless its
    event has a producer and a sequence, or is published with `qos` 2. A broker whose machine is gone without a word is lost,
    too: after a minute, or after five where something was sent to it meanwhile. So is one from which nothing comes for
    `timeout_s` seconds while only events are waited for, and then for as long no answer to a ``ping``.

    `spool` is a folder in which this client keeps its half of the exactly-once handshakes, by its name; with it, messages
    that a process before this one has left are sent, and `qos` may be 2. A step of a handshake is said again when it has
    no answer within `answer_s` seconds. Entering raises SpoolTaken where another process has the same name and folder.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:8000",
        *,
        name: str = "client",
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        connect_timeout_s: float = 10.0,
        timeout_s: float = 30.0,
        spool: Path | None = None,
        answer_s: float = 10.0,
    ) -> None:
        self.address = address
        self.name = name
        self._hello = replies.hello_line(name, token)
        self._connect_timeout_s = connect_timeout_s
        self._subscriptions: dict[str, Subscription] = {}
        self._link = Link(
            address,
            name,
            tls=tls,
            timeout_s=timeout_s,
            first_commands=self._first_commands,
            deliver=self._deliver,
            is_listening=lambda: bool(self._subscriptions),
        )
        self._stack = AsyncExitStack()
        self._spool_folder = spool
        self._answer_s = answer_s
        self._spool: Spool | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            if self._spool_folder is not None:
                self._spool = Spool(self._spool_folder, self.name)
                stack.callback(self._spool.close)
                self._publishing = Publishing(self._link.ask, self._spool, self._answer_s)
            opened = await self._link.connect(self._connect_timeout_s)
            self._tasks = tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            tasks.start_soon(self._link.serve, opened)
            if self._spool is not None:
                tasks.start_soon(self._publishing.resume)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        try:
            return await self._stack.__aexit__(exc_type, exc, traceback)
        except BaseExceptionGroup as group:
            # The tasks are ours, so what the block itself raised leaves it as it is, not wrapped by them.
            if group.split(lambda one: one is exc)[1] is None:
                return False
            raise

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return self._link.is_connected

    @property
    def connects(self) -> int:
        """How many connections have been made."""
        return self._link.connects

    _publishing: Publishing
    _tasks: TaskGroup

    @property
    def unsent(self) -> int:
        """How many messages of `qos` 2 are kept here because they are not known to be stored."""
        return 0 if self._spool is None else len(self._spool.outgoing)

    @property
    def unfinished(self) -> int:
        """How many events of `qos` 2 are kept here because their handshake is not at its end."""
        return 0 if self._spool is None else len(self._spool.incoming)

    async def publish(self, topic: str, event: Event, *, qos: Literal[1, 2] = 1) -> Receipt:
        """Publish one event and wait for its confirmation. Raises Refusal.

        With `qos` 2 it is stored once whatever happens: it is kept in the spool until the broker has it. Its id is what tells
        it from others, so it must be unique for this client and topic. Raises HandshakeFailed after five tries in vain; the
        event is kept then, and sent when a client with this name and spool starts again.
        """
        if qos == 2:
            self._needed_spool()
            return await self._publishing.publish(topic, event)
        command = PublishCommand(replies.publish_line(f"pub {topic} ".encode(), encode_event(event)))
        await self._link.send(command).wait()
        return command.receipt

    def publisher(self, topic: str, *, window: int = 10_000, on_confirm: OnConfirm | None = None) -> Publisher:
        """Return a pipelined publisher with at most `window` events unconfirmed; use it in an ``async with`` block.

        `on_confirm` is called with each receipt, in the order of publishing.
        """
        return Publisher(self._link, topic, window, on_confirm)

    async def subscribe(
        self,
        topic: str,
        *,
        as_: str | None = None,
        prefetch: int = 1000,
        from_: Start = "latest",
        create: bool = False,
        timeout_s: float | None = None,
        tries: int | None = None,
        strikes: Sequence[Cause] | None = None,
        backoff_s: float | None = None,
        max_wait_s: float | None = None,
        qos: Literal[1, 2] = 1,
    ) -> Subscription:
        """Subscribe to a topic; with `as_` the subscription outlives this client. Raises Refusal.

        `prefetch` (1–100,000) events may be in flight here. `from_` counts when the subscription is new: ``latest``,
        ``earliest``, an offset or a time (ISO 8601). The others are the subscription's policy: what is None stays as it is,
        or has the broker's default when the subscription is new. A client has one subscription a topic.

        With `qos` 2, each event is handed over once: it is in the spool, and this client's alone, before it is; it has been
        handed over by a process that did not ack it where its `attempt` is above 1. It needs a spool and `as_`.
        """
        if topic in self._subscriptions:
            raise ValueError(f"this client has a subscription to {topic} already; use another client")
        policy = replies.policy_options(timeout_s, tries, strikes, backoff_s, max_wait_s)
        options = f"prefetch={prefetch}{policy}{' create' if create else ''}"
        subscription = (
            Subscription(self._link, topic, as_, from_, options)
            if qos == 1
            else self._taking(topic, as_, from_, options)
        )
        self._subscriptions[topic] = subscription
        try:
            if isinstance(subscription, ExactlyOnceSubscription):
                await subscription.resume()
            await self._link.send(SubscribeCommand(subscription.line(), subscription)).wait()
        except BrokerError:
            del self._subscriptions[topic]
            raise
        if isinstance(subscription, ExactlyOnceSubscription):
            self._tasks.start_soon(subscription.serve)
        return subscription

    def _taking(self, topic: str, name: str | None, start: Start, options: str) -> ExactlyOnceSubscription:
        if name is None:
            raise ValueError("qos=2 needs a subscription that outlives its connection: as_=…")
        spool = self._needed_spool()
        return ExactlyOnceSubscription(self._link, topic, name, start, options, spool=spool, answer_s=self._answer_s)

    def _needed_spool(self) -> Spool:
        if self._spool is None:
            raise ValueError("qos=2 needs a folder for what must outlive this process: Client(…, spool=Path(…))")
        return self._spool

    async def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; the broker forgets what it had pending."""
        await self._link.ask(f"unsub {subscription.topic}{subscription.as_option}\n".encode())
        self._subscriptions.pop(subscription.topic, None)
        subscription.end()

    async def read(self, topic: str, offset: Start, *, limit: int = 1000, bytes_max: int = 1 << 20) -> Page:
        """Read up to `limit` events of about `bytes_max` bytes from `offset`, without a subscription. Raises Refusal."""
        command = self._link.send(Command(f"read {topic} {offset} limit={limit} bytes={bytes_max}\n".encode()))
        _, after = replies.read_head(await command.wait())
        return replies.page(command.lines, after)

    async def last(self, topic: str, producer: str) -> ProducerPosition | None:
        """Return where a producer stands on a topic, None where the topic knows it not. Raises Refusal."""
        return replies.position_answer(await self._link.ask(f"last {topic} {producer}\n".encode()))

    async def checkpoint(self, topic: str, producer: str, value: str) -> None:
        """Move a producer's checkpoint without an event; returns when it is on the disk. Raises Refusal."""
        await self._link.ask(f"checkpoint {topic} {producer} {value}\n".encode())

    async def topics(self) -> list[TopicInfo]:
        """Return all topics by name."""
        return replies.topics_answer(await self._link.ask(b"topics\n"))

    async def stats(self) -> dict[str, Any]:
        """Return every figure of the broker."""
        answer: dict[str, Any] = msgspec.json.decode(replies.json_answer(await self._link.ask(b"stats\n"), 2))
        return answer

    async def command(self, line: str) -> str:
        """Have a command carried out as it is typed, and return its reply; see `replies.command_line`. Raises Refusal."""
        return (await self._link.ask(replies.command_line(line))).decode()

    async def ping(self) -> None:
        """Wait for the broker's sign of life."""
        await self._link.ask(b"ping\n")

    async def ask(self, line: bytes) -> bytes:
        """Send a line, again on a new connection where one is lost, and return its reply. Raises Refusal."""
        return await self._link.ask(line)

    def _first_commands(self) -> list[Command]:
        """Say on a new connection who this is, and on any but the first what it subscribes to."""
        first = [Command(b""), HelloCommand(self._hello)]
        if self._link.connects:
            known = [subscription for subscription in self._subscriptions.values() if subscription.known_as]
            first += [ResumeCommand(subscription.resume_line(), subscription) for subscription in known]
        return first

    def _deliver(self, events: list[StoredEvent]) -> None:
        if len(self._subscriptions) == 1:
            next(iter(self._subscriptions.values())).deliver(events)
            return
        by_topic: dict[str, list[StoredEvent]] = {}
        for event in events:
            by_topic.setdefault(event.topic, []).append(event)
        for topic, some in by_topic.items():
            if topic in self._subscriptions:
                self._subscriptions[topic].deliver(some)
