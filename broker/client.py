"""The async client: pipelined publishing, batches of deliveries, and connections that come back by themselves.

One task owns the connection: it connects, says again what must be said on a new connection, and then reads; a second one
writes what has been queued. Always true: `_sent` holds, in order, every command whose reply is still to come; after a
lost connection all of them are sent again, save acks, since what was in flight is given again.
"""

import ssl
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

import anyio
import msgspec
import structlog
from anyio import lowlevel
from anyio.abc import ByteStream, TaskGroup

from broker.addresses import split_address
from broker.errors import BrokerError, BrokerUnreachable, Refusal
from broker.events import Event, StoredEvent, decode_stored, encode_event
from broker.failures import Cause
from broker.handshakes import ExactlyOnceSubscription, Publishing, Spool
from broker.protocol import replies
from broker.protocol.replies import Page, ProducerPosition, Receipt, TopicInfo
from broker.subscription import Start, Subscription

__all__ = ["Client", "Publisher", "Subscription"]

READ_BYTES: Final = 256 << 10
QUEUE_BYTES: Final = 4 << 20
YIELD_EVERY: Final = 256
PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

logger = structlog.stdlib.get_logger()

C = TypeVar("C", bound="_Command")
OnConfirm = Callable[[Receipt], None]


class _Command:
    """One command and the place where its reply arrives."""

    def __init__(self, line: bytes) -> None:
        self.line = line
        self.reply: bytes | None = None
        self.lines: list[bytes] = []
        self.refusal: Refusal | None = None
        self._is_answered = anyio.Event()

    def resend(self) -> bytes:
        """What is sent on a new connection; it may be nothing, if nobody waits any more."""
        return self.line

    def answer(self, reply: bytes, lines: list[bytes]) -> bool:
        """Take a reply; returns whether the command is done."""
        self.reply, self.lines = reply, lines
        self._is_answered.set()
        return True

    def refuse(self, refusal: Refusal) -> bool:
        """Take a refusal; returns whether the command is done."""
        self.refusal = refusal
        self._is_answered.set()
        return True

    async def wait(self) -> bytes:
        """Return the reply. Raises Refusal."""
        await self._is_answered.wait()
        if self.refusal is not None:
            raise self.refusal
        assert self.reply is not None  # noqa: S101 — answered, and not refused
        return self.reply


class _PublishCommand(_Command):
    """One publish whose confirmation somebody waits for."""

    receipt: Receipt

    def confirm(self, receipt: Receipt) -> tuple[Receipt | None, bool]:
        """Take a share of a confirmation; returns what is left of it, and whether the command is done."""
        self.receipt, left = receipt.split(1)
        self.answer(b"", [])
        return left, True


class _AckCommand(_Command):
    """An ack: nobody waits for it, and on a new connection it would be stale."""

    def __init__(self, line: bytes, subscription: "Subscription") -> None:
        super().__init__(line)
        self._subscription = subscription

    def resend(self) -> bytes:
        return b""

    def refuse(self, refusal: Refusal) -> bool:
        self._subscription.stale += 1
        return True


class _HelloCommand(_Command):
    """The first command of a connection: a refusal of it means that nothing else will go well."""

    def refuse(self, refusal: Refusal) -> bool:
        logger.error("the broker refuses this client", code=refusal.code, reason=refusal.text)
        return super().refuse(refusal)


class _SubscribeCommand(_Command):
    """The command that makes a subscription, or goes on with it on a new connection."""

    def __init__(self, line: bytes, subscription: "Subscription") -> None:
        super().__init__(line)
        self._subscription = subscription

    def answer(self, reply: bytes, lines: list[bytes]) -> bool:
        self._subscription.begin(replies.subscription_name(reply))
        return super().answer(reply, lines)

    def refuse(self, refusal: Refusal) -> bool:
        self._subscription.end(refusal)
        return super().refuse(refusal)


class _PublishRun(_Command):
    """A run of publishes behind each other, all of one publisher; confirmations take them off its head."""

    def __init__(self, publisher: "Publisher") -> None:
        super().__init__(b"")
        self.publisher = publisher
        self.unconfirmed: deque[bytes] = deque()

    def resend(self) -> bytes:
        return b"".join(self.unconfirmed)

    def confirm(self, receipt: Receipt) -> tuple[Receipt | None, bool]:
        """Take a share of a confirmation; returns what is left of it, and whether the command is done."""
        mine, left = receipt.split(len(self.unconfirmed))
        for _ in range(mine.count):
            self.unconfirmed.popleft()
        self.publisher.confirm(mine)
        return left, not self.unconfirmed

    def refuse(self, refusal: Refusal) -> bool:
        self.unconfirmed.popleft()
        self.publisher.refuse(refusal)
        return not self.unconfirmed


class Client:
    """A connection to the broker at `address` that comes back by itself; use it in an ``async with`` block.

    Entering raises BrokerUnreachable if no broker answers within `connect_timeout_s` seconds. Afterwards a lost
    connection is made anew with growing pauses for as long as it takes, subscriptions go on, and every command without a
    reply is sent again: a publish whose reply was lost may then be stored twice, unless its event has a producer and a
    sequence, or is published with `qos` 2.

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
        spool: Path | None = None,
        answer_s: float = 10.0,
    ) -> None:
        self.address = address
        self.name = name
        self.connects = 0
        self._hello = replies.hello_line(name, token)
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self._queue: list[bytes] = []
        self._queued_bytes = 0
        self._has_queued = anyio.Event()
        self._has_room = anyio.Event()
        self._sent: deque[_Command] = deque()
        self._subscriptions: dict[str, Subscription] = {}
        self._stack = AsyncExitStack()
        self._spool_folder = spool
        self._answer_s = answer_s
        self._spool: Spool | None = None
        self._rest = b""
        self._read: tuple[bytes, int, list[bytes]] | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            if self._spool_folder is not None:
                self._spool = Spool(self._spool_folder, self.name)
                stack.callback(self._spool.close)
                self._publishing = Publishing(self.ask, self._spool, self._answer_s)
            stream = await self._first_connection()
            self._tasks = tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            tasks.start_soon(self._serve, stream)
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
        return self._is_connected

    _is_connected = False
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
        command = _PublishCommand(replies.publish_line(f"pub {topic} ".encode(), encode_event(event)))
        await self._send(command).wait()
        return command.receipt

    def publisher(self, topic: str, *, window: int = 10_000, on_confirm: OnConfirm | None = None) -> "Publisher":
        """Return a pipelined publisher with at most `window` events unconfirmed; use it in an ``async with`` block.

        `on_confirm` is called with each receipt, in the order of publishing.
        """
        return Publisher(self, topic, window, on_confirm)

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
            Subscription(self, topic, as_, from_, options) if qos == 1 else self._taking(topic, as_, from_, options)
        )
        self._subscriptions[topic] = subscription
        try:
            if isinstance(subscription, ExactlyOnceSubscription):
                await subscription.resume()
            await self._send(_SubscribeCommand(subscription.line(), subscription)).wait()
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
        return ExactlyOnceSubscription(self, topic, name, start, options, spool=spool, answer_s=self._answer_s)

    def _needed_spool(self) -> Spool:
        if self._spool is None:
            raise ValueError("qos=2 needs a folder for what must outlive this process: Client(…, spool=Path(…))")
        return self._spool

    async def unsubscribe(self, subscription: "Subscription") -> None:
        """End a subscription; the broker forgets what it had pending."""
        await self.ask(f"unsub {subscription.topic}{subscription.as_option}\n".encode())
        self._subscriptions.pop(subscription.topic, None)
        subscription.end()

    async def read(self, topic: str, offset: Start, *, limit: int = 1000, bytes_max: int = 1 << 20) -> Page:
        """Read up to `limit` events of about `bytes_max` bytes from `offset`, without a subscription. Raises Refusal."""
        command = self._send(_Command(f"read {topic} {offset} limit={limit} bytes={bytes_max}\n".encode()))
        _, after = replies.read_head(await command.wait())
        return replies.page(command.lines, after)

    async def last(self, topic: str, producer: str) -> ProducerPosition | None:
        """Return where a producer stands on a topic, None where the topic knows it not. Raises Refusal."""
        return replies.position_answer(await self.ask(f"last {topic} {producer}\n".encode()))

    async def checkpoint(self, topic: str, producer: str, value: str) -> None:
        """Move a producer's checkpoint without an event; returns when it is on the disk. Raises Refusal."""
        await self.ask(f"checkpoint {topic} {producer} {value}\n".encode())

    async def topics(self) -> list[TopicInfo]:
        """Return all topics by name."""
        return replies.topics_answer(await self.ask(b"topics\n"))

    async def stats(self) -> dict[str, Any]:
        """Return every figure of the broker."""
        answer: dict[str, Any] = msgspec.json.decode(replies.json_answer(await self.ask(b"stats\n"), 2))
        return answer

    async def command(self, line: str) -> str:
        """Have a command carried out as it is typed, and return its reply; see `replies.command_line`. Raises Refusal."""
        return (await self.ask(replies.command_line(line))).decode()

    async def ping(self) -> None:
        """Wait for the broker's sign of life."""
        await self.ask(b"ping\n")

    # For publishers and subscriptions

    async def wait_for_room(self) -> None:
        """Wait while too much is queued for the socket."""
        while self._queued_bytes > QUEUE_BYTES:
            self._has_room = anyio.Event()
            await self._has_room.wait()

    def queue_publishes(self, publisher: "Publisher", lines: Sequence[bytes]) -> None:
        """Queue whole ``pub`` lines behind each other."""
        run = self._sent[-1] if self._sent else None
        if not isinstance(run, _PublishRun) or run.publisher is not publisher:
            run = _PublishRun(publisher)
            self._sent.append(run)
        run.unconfirmed.extend(lines)
        self._enqueue(b"".join(lines))

    def queue_nack(self, subscription: "Subscription", offset: int, error: dict[str, Any]) -> None:
        """Queue a nack; its reply is counted and not waited for."""
        if self._is_connected:
            line = b"nack %b @%d %b\n" % (subscription.topic.encode(), offset, msgspec.json.encode(error))
            self._send(_AckCommand(line, subscription))

    def queue_acks(self, subscription: "Subscription", offsets: Sequence[int]) -> None:
        """Queue acks; their replies are counted and not waited for."""
        if self._is_connected:
            for line in replies.ack_lines(subscription.topic, offsets):
                self._send(_AckCommand(line, subscription))

    async def ask(self, line: bytes) -> bytes:
        """Send a line, again on a new connection where one is lost, and return its reply. Raises Refusal."""
        return await self._send(_Command(line)).wait()

    def _send(self, command: C) -> C:
        self._sent.append(command)
        self._enqueue(command.line)
        return command

    def _enqueue(self, data: bytes) -> None:
        # Without a connection there is no queue: `_sent` is sent whole on the next one.
        if self._is_connected:
            self._queue.append(data)
            self._queued_bytes += len(data)
            self._has_queued.set()

    # The connection

    async def _first_connection(self) -> ByteStream:
        reason = "timeout"
        with anyio.move_on_after(self._connect_timeout_s):
            while True:
                try:
                    return await self._connect()
                except OSError as error:
                    reason = error.strerror or str(error) or type(error).__name__
                    await anyio.sleep(PAUSES_S[2])
        raise BrokerUnreachable(self.address, reason)

    async def _connect(self) -> ByteStream:
        host, port = split_address(self.address)
        if self._tls is None:
            return await anyio.connect_tcp(host, port)
        return await anyio.connect_tcp(host, port, ssl_context=self._tls, tls_standard_compatible=False)

    async def _serve(self, stream: ByteStream) -> None:
        while True:
            try:
                async with stream, anyio.create_task_group() as tasks:
                    self._greet()
                    tasks.start_soon(self._write, stream)
                    await self._read_all(stream)
            except* (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                pass
            self._is_connected = False
            logger.warning("lost the broker", address=self.address, client=self.name)
            stream = await self._reconnect()

    async def _reconnect(self) -> ByteStream:
        attempt = 0
        while True:
            await anyio.sleep(PAUSES_S[min(attempt, len(PAUSES_S) - 1)])
            attempt += 1
            try:
                return await self._connect()
            except OSError:
                continue

    def _greet(self) -> None:
        """Say on a new connection: who this is, what it subscribes to, and all that had no reply."""
        again = [command for command in self._sent if command.resend()]
        hello = [_Command(b""), _HelloCommand(self._hello)]
        if self.connects:
            known = [subscription for subscription in self._subscriptions.values() if subscription.known_as]
            hello += [_SubscribeCommand(subscription.resume_line(), subscription) for subscription in known]
        self._sent = deque([*hello, *again])
        self._rest, self._read = b"", None
        self._is_connected = True
        self.connects += 1
        self._queue, self._queued_bytes = [], 0
        for command in self._sent:
            self._enqueue(command.resend())

    async def _write(self, stream: ByteStream) -> None:
        while True:
            if not self._queue:
                self._has_room.set()
                self._has_queued = anyio.Event()
                await self._has_queued.wait()
            data = b"".join(self._queue)
            self._queue.clear()
            self._queued_bytes = 0
            self._has_room.set()
            await stream.send(data)

    async def _read_all(self, stream: ByteStream) -> None:
        while True:
            data = await stream.receive(READ_BYTES)
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._take(lines)

    def _take(self, lines: list[bytes]) -> None:
        """Give events to their subscriptions, a run at a time, and replies to their commands."""
        events: list[StoredEvent] = []
        for line in lines:
            if self._read is not None:
                self._take_read(line)
            elif line.startswith(b"{"):
                events.append(decode_stored(line))
            elif line.startswith((b"+OK pub ", b"+OK dup ")):
                self._confirm(replies.receipt(line))
            elif line.startswith(b"-"):
                self._done(self._sent[0].refuse(replies.refusal_of(line)))
            elif line.startswith(b"+OK read "):
                self._read = (line, replies.read_head(line)[0], [])
                self._finish_read()
            else:
                self._done(self._sent[0].answer(line, []))
        if events:
            self._deliver(events)

    def _confirm(self, receipt: Receipt | None) -> None:
        """Give a confirmation, which may stand for many publishes, to those that wait for it, in their order."""
        while receipt is not None:
            command = self._sent[0]
            assert isinstance(command, _PublishCommand | _PublishRun)  # noqa: S101 — replies keep the commands' order
            receipt, is_done = command.confirm(receipt)
            self._done(is_done)

    def _take_read(self, line: bytes) -> None:
        assert self._read is not None  # noqa: S101 — the caller asked
        self._read[2].append(line)
        self._finish_read()

    def _finish_read(self) -> None:
        if self._read is not None and len(self._read[2]) == self._read[1]:
            head, _, lines = self._read
            self._read = None
            self._done(self._sent[0].answer(head, lines))

    def _done(self, is_done: bool) -> None:
        if is_done:
            self._sent.popleft()

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


class Publisher:
    """Publishes to one topic in order without waiting for each confirmation; leaving its block waits for all."""

    def __init__(self, client: Client, topic: str, window: int, on_confirm: OnConfirm | None) -> None:
        self.topic = topic
        self.window = window
        self.unconfirmed = 0
        self._client = client
        self._prefix = f"pub {topic} ".encode()
        self._on_confirm = on_confirm
        self._refusal: Refusal | None = None
        self._has_changed = anyio.Event()
        self._since_yield = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        if exc_type is None:
            await self.flush()

    async def publish(self, event: Event) -> None:
        """Send an event, once there is room in the window. Raises Refusal if an event before it was refused."""
        await self._wait_while(self.window)
        self._give([event])
        self._since_yield += 1
        if self._since_yield >= YIELD_EVERY:
            self._since_yield = 0
            await lowlevel.checkpoint()

    async def publish_many(self, events: Iterable[Event]) -> None:
        """Send events in order, as many at a time as the window has room for. Raises Refusal as `publish` does."""
        chunk: list[Event] = []
        for event in events:
            chunk.append(event)
            if len(chunk) == YIELD_EVERY:
                await self._give_when_room(chunk)
                chunk = []
        if chunk:
            await self._give_when_room(chunk)

    async def flush(self) -> None:
        """Wait until everything given is confirmed. Raises Refusal if an event was refused."""
        await self._wait_while(1)

    def confirm(self, receipt: Receipt) -> None:
        """The client's: a confirmation has come."""
        self.unconfirmed -= receipt.count
        if self._on_confirm is not None:
            self._on_confirm(receipt)
        self._has_changed.set()

    def refuse(self, refusal: Refusal) -> None:
        """The client's: an event was refused."""
        self.unconfirmed -= 1
        self._refusal = self._refusal or refusal
        self._has_changed.set()

    async def _give_when_room(self, events: list[Event]) -> None:
        await self._wait_while(max(1, self.window - len(events)))
        self._give(events)
        await lowlevel.checkpoint()

    def _give(self, events: list[Event]) -> None:
        prefix = self._prefix
        self.unconfirmed += len(events)
        self._client.queue_publishes(self, [b"%b%b\n" % (prefix, encode_event(event)) for event in events])

    async def _wait_while(self, limit: int) -> None:
        """Wait until fewer than `limit` events are unconfirmed."""
        while self.unconfirmed >= limit and self._refusal is None:
            self._has_changed = anyio.Event()
            await self._has_changed.wait()
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise refusal
