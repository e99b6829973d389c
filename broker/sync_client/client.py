"""What one asks of a broker from a thread, and the subscriptions that one has there."""

import ssl
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, Self

import msgspec

from broker.errors import BrokerError, BrokerLost, Refusal
from broker.events import Event, decode_stored, encode_event
from broker.failures import Cause
from broker.handshakes import Spool
from broker.handshakes.taking import TOGETHER
from broker.protocol import replies
from broker.protocol.replies import Page, ProducerPosition, Receipt, TopicInfo
from broker.sync_client.connection import Connection
from broker.sync_client.handshakes import SyncExactlyOnceSubscription, SyncPublishing
from broker.sync_client.subscription import SyncSubscription

__all__ = ["SyncClient"]

CHUNK: Final = 500


class SyncClient:
    """Connects when it is made. For one thread; use it in a ``with`` block. Times are in seconds.

    A lost connection is raised as BrokerLost, and the client is of no more use; a broker that does not answer within
    `timeout_s` seconds is lost, also to who waits for events. `spool` is a folder in which this client
    keeps its half of the exactly-once handshakes, by its name, as the async client does; with it, messages that a process
    before this one has left are sent first, and `qos` may be 2. Raises BrokerUnreachable, TlsFailed, Refusal, and
    SpoolTaken where another process has the same name and folder.
    """

    def __init__(
        self,
        address: str,
        *,
        name: str = "sync",
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 30.0,
        spool: Path | None = None,
    ) -> None:
        self.address = address
        self._subscriptions: dict[str, SyncSubscription] = {}
        self._spool: Spool | None = None
        with ExitStack() as stack:
            if spool is not None:
                self._spool = Spool(spool, name)
                stack.callback(self._spool.close)
            self._connection = Connection(
                address,
                replies.hello_line(name, token),
                tls=tls,
                timeout_s=timeout_s,
                set_aside=self._deliver,
            )
            stack.callback(self._connection.close)
            if self._spool is not None:
                self._publishing = SyncPublishing(self._connection, self._spool)
                self._publishing.resume()
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; what is not done of the handshakes is kept."""
        self._stack.close()

    @property
    def unsent(self) -> int:
        """How many messages of `qos` 2 are kept here because they are not known to be stored."""
        return 0 if self._spool is None else len(self._spool.outgoing)

    @property
    def unfinished(self) -> int:
        """How many events of `qos` 2 are kept here because their handshake is not at its end."""
        return 0 if self._spool is None else len(self._spool.incoming)

    def publish(self, topic: str, event: Event, *, qos: Literal[1, 2] = 1) -> Receipt:
        """Publish one event and wait for its confirmation. Raises Refusal, BrokerLost.

        With `qos` 2 it is stored once whatever happens: it is kept in the spool until the broker has it, so after BrokerLost,
        or HandshakeFailed after five tries in vain, it is sent when a client with this name and spool is made. Its id is what
        tells it from others, so it must be unique for this client and topic.
        """
        if qos == 2:
            return self._publish_once(topic, [event])[0]
        return replies.receipt(
            self._connection.ask(replies.publish_line(f"pub {topic} ".encode(), encode_event(event)))
        )

    def publish_many(
        self, topic: str, events: Iterable[Event], *, window: int = 10_000, qos: Literal[1, 2] = 1
    ) -> list[Receipt]:
        """Publish events in order, at most `window` of them unconfirmed; returns when all are confirmed.

        Raises Refusal with the first event that was refused, after those before it were confirmed. With `qos` 2 up to 500
        shake hands side by side, in order, and there is a receipt for each.
        """
        if qos == 2:
            rest = iter(events)
            return [
                one
                for some in iter(lambda: list(islice(rest, TOGETHER)), [])
                for one in self._publish_once(topic, some)
            ]
        prefix = f"pub {topic} ".encode()
        receipts: list[Receipt] = []
        unconfirmed = 0
        lines = (replies.publish_line(prefix, encode_event(event)) for event in events)
        while chunk := list(islice(lines, CHUNK)):
            self._connection.send(b"".join(chunk))
            unconfirmed += len(chunk)
            unconfirmed = self._confirmed(receipts, unconfirmed, max(0, window - CHUNK))
        self._confirmed(receipts, unconfirmed, 0)
        return receipts

    def subscribe(
        self,
        topic: str,
        *,
        as_: str | None = None,
        prefetch: int = 200,
        from_: int | str = "latest",
        create: bool = False,
        timeout_s: float | None = None,
        tries: int | None = None,
        strikes: Sequence[Cause] | None = None,
        backoff_s: float | None = None,
        max_wait_s: float | None = None,
        qos: Literal[1, 2] = 1,
    ) -> SyncSubscription:
        """Subscribe to a topic; see `Client.subscribe`, whose arguments these are. Raises Refusal, BrokerLost.

        Events are set aside while this client asks for something else; they come to whoever asks the subscription for them.
        While it asks for nothing nobody reads, and the broker ends a connection that takes nothing for a minute: `prefetch`
        events should be no more than a few MB.
        """
        if topic in self._subscriptions:
            raise ValueError(f"this client has a subscription to {topic} already; use another client")
        name = "" if as_ is None else f" as={as_}"
        policy = replies.policy_options(timeout_s, tries, strikes, backoff_s, max_wait_s)
        options = f"prefetch={prefetch}{policy}{' create' if create else ''}{' qos=2' if qos == 2 else ''}"
        subscription = SyncSubscription(self._connection, topic, as_) if qos == 1 else self._taking(topic, as_)
        self._subscriptions[topic] = subscription
        try:
            if isinstance(subscription, SyncExactlyOnceSubscription):
                subscription.resume()
            self._connection.ask(f"sub {topic}{name} from={from_} {options}\n".encode())
        except BrokerError:
            del self._subscriptions[topic]
            raise
        return subscription

    def unsubscribe(self, subscription: SyncSubscription) -> None:
        """End a subscription; the broker forgets what it had pending."""
        name = "" if subscription.name is None else f" as={subscription.name}"
        self._connection.ask(f"unsub {subscription.topic}{name}\n".encode())
        self._subscriptions.pop(subscription.topic, None)
        subscription.end()

    def read_lines(
        self, topic: str, offset: int | str, *, limit: int = 10_000, bytes_max: int = 8 << 20
    ) -> tuple[list[bytes], int]:
        """Return up to `limit` stored lines (JSON, no line end) of about `bytes_max` bytes, and the next offset."""
        head = self._connection.ask(f"read {topic} {offset} limit={limit} bytes={bytes_max}\n".encode())
        count, after = replies.read_head(head)
        return self._connection.lines(count), after

    def read(self, topic: str, offset: int | str, *, limit: int = 1000) -> Page:
        """Read up to `limit` events from `offset`, ``earliest`` or ``latest`` on."""
        return replies.page(*self.read_lines(topic, offset, limit=limit))

    def last(self, topic: str, producer: str) -> ProducerPosition | None:
        """Return where a producer stands, None where the topic knows it not."""
        return replies.position_answer(self._connection.ask(f"last {topic} {producer}\n".encode()))

    def checkpoint(self, topic: str, producer: str, value: str) -> None:
        """Move a producer's checkpoint without an event; returns when it is on the disk."""
        self._connection.ask(f"checkpoint {topic} {producer} {value}\n".encode())

    def topics(self) -> list[TopicInfo]:
        """Return all topics by name."""
        return replies.topics_answer(self._connection.ask(b"topics\n"))

    def stats(self) -> dict[str, Any]:
        """Return every figure of the broker."""
        answer: dict[str, Any] = msgspec.json.decode(replies.json_answer(self._connection.ask(b"stats\n"), 2))
        return answer

    def command(self, line: str) -> str:
        """Have a command carried out as it is typed, and return its reply; see `replies.command_line`. Raises Refusal."""
        return self._connection.ask(replies.command_line(line)).decode()

    def ping(self) -> None:
        """Wait for the broker's sign of life."""
        self._connection.ask(b"ping\n")

    def _publish_once(self, topic: str, events: Sequence[Event]) -> list[Receipt]:
        self._needed_spool()
        return self._publishing.publish_many(topic, events)

    def _taking(self, topic: str, name: str | None) -> SyncExactlyOnceSubscription:
        if name is None:
            raise ValueError("qos=2 needs a subscription that outlives its connection: as_=…")
        return SyncExactlyOnceSubscription(self._connection, topic, name, self._needed_spool())

    def _needed_spool(self) -> Spool:
        if self._spool is None:
            raise ValueError("qos=2 needs a folder for what must outlive this process: SyncClient(…, spool=Path(…))")
        return self._spool

    def _confirm(self, receipts: list[Receipt]) -> int:
        receipt = replies.receipt(self._connection.reply())
        receipts.append(receipt)
        return receipt.count

    def _confirmed(self, receipts: list[Receipt], unconfirmed: int, most: int) -> int:
        """Read confirmations until at most `most` events are unconfirmed; returns how many are. Raises Refusal."""
        while unconfirmed > most:
            try:
                unconfirmed -= self._confirm(receipts)
            except Refusal:
                self._pass_over(unconfirmed - 1)
                raise
        return unconfirmed

    def _pass_over(self, unconfirmed: int) -> None:
        """Read what is answered to events behind a refused one, so that the next command reads its own reply."""
        with suppress(BrokerLost):
            while unconfirmed > 0:
                try:
                    unconfirmed -= self._confirm([])
                except Refusal:
                    unconfirmed -= 1

    def _deliver(self, line: bytes) -> None:
        event = decode_stored(line)
        subscription = self._subscriptions.get(event.topic)
        if subscription is not None:
            subscription.deliver(event)
