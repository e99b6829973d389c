"""The blocking client: commands to a broker, publishing and subscriptions, for one thread at a time."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from tweetwire.client.blocking.commands import BlockingCommands
from tweetwire.client.blocking.link import BlockingLink
from tweetwire.client.blocking.marks import BlockingMarks
from tweetwire.client.blocking.publishing import CHUNK, Answered, BlockingPublisher
from tweetwire.client.blocking.spool_opening import once_publishing, open_spool
from tweetwire.client.blocking.subscription import SyncSubscription
from tweetwire.client.engine import ClientEngine
from tweetwire.client.engine.commands import SubscribeCommand
from tweetwire.client.engine.publishes import publish_command
from tweetwire.client.engine.read_wait import longest_wait_s
from tweetwire.protocol import requests
from tweetwire.protocol.claim_requests import epoch_option
from tweetwire.protocol.events import Event
from tweetwire.protocol.failures import Cause
from tweetwire.protocol.mark_replies import Promise, kept
from tweetwire.protocol.mark_requests import After, confirmation_options
from tweetwire.protocol.policy import Ordered
from tweetwire.protocol.replies import Receipt
from tweetwire.protocol.requests import Start, SubscribeRequest

if TYPE_CHECKING:
    import ssl

    from tweetwire.client.blocking.handshakes import SyncOncePublishing
    from tweetwire.client.exactly_once import Spool

__all__ = ["SyncClient"]


class SyncClient(BlockingCommands, BlockingMarks):
    """A blocking client of the broker that reconnects by itself. Use it in a ``with`` block, in one thread at a time.

    The client connects when it is made. After a lost connection, the current or next call connects again, with growing
    pauses. Subscriptions continue, and commands without a reply are sent again. So a publish whose reply was lost may be
    stored twice. This does not happen if its event has a producer and a sequence, or if it is published with `qos` 2. Acks
    are not sent again, so their events are delivered again.

    Calls raise BrokerLost in two cases:

    - There is no connection for `reconnect_s` seconds, or each connection is lost before the broker answers.
    - The broker does not answer within `timeout_s` seconds. It may or may not have carried out the command.

    The next call then connects again, but does not repeat the commands of the failed call. The same holds after an
    exception in the middle of a call, such as KeyboardInterrupt. Calls raise RuntimeError in a second thread at the same
    time and in a forked process, and ClientClosed after `close`.

    Args:
        address: Address of the broker, such as ``localhost:8000``.
        name: Name of this client, or of a user if the broker has users.
        token: Token of that user.
        tls: TLS context for the connection; None for a connection without TLS.
        timeout_s: Longest wait for the broker's answer, in seconds.
        reconnect_s: Longest time without a connection, in seconds. None means no limit; 0 means that the client never
            reconnects.
        spool: Folder for the client's half of the exactly-once handshakes, which `qos` 2 needs. The file in it has the
            client's name. Messages that an earlier process left there are sent first.
        line_bytes_max: Longest line that the client accepts from the broker, in bytes.

    Raises:
        BrokerUnreachable: No broker answers at `address`.
        TlsFailed: Client and broker do not agree on TLS.
        Refusal: The broker refuses the login or another connection.
        SpoolTaken: Another process uses the same name and folder.
        SpoolUnusable: The spool cannot be read or written.
        ValueError: `name` or `token` cannot be part of a line.
    """

    def __init__(
        self,
        address: str,
        *,
        name: str = "sync",
        token: str | None = None,
        tls: "ssl.SSLContext | None" = None,
        timeout_s: float = 30.0,
        reconnect_s: float | None = None,
        spool: Path | None = None,
        line_bytes_max: int = 64 << 20,
    ) -> None:
        self.address = address
        self._line_bytes_max = line_bytes_max
        self._read_wait_s = longest_wait_s(timeout_s)
        self._engine = ClientEngine(requests.hello_line(name, token), line_bytes_max)
        self._spool: Spool | None = None
        with ExitStack() as stack:
            if spool is not None:
                self._spool = open_spool(spool, name)
                stack.callback(self._spool.close)
            self._link = BlockingLink(
                address, name, self._engine, tls=tls, timeout_s=timeout_s, reconnect_s=reconnect_s
            )
            stack.callback(self._link.close)
            if self._spool is not None:
                self._publishing = once_publishing(self._link, self._spool)
                self._publishing.resume()
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Say ``quit`` to the broker, and close the connection and the spool.

        The broker takes the events in flight back. The spool keeps unfinished handshakes for the next client.
        """
        self._stack.close()

    @property
    def broker_identity(self) -> str | None:
        """The identity of the broker's data folder, as the last greeting showed it. None if the broker shows none."""
        return self._engine.identity

    @property
    def connects(self) -> int:
        """The number of connections made so far."""
        return self._engine.connects

    @property
    def unsent(self) -> int:
        """The number of `qos` 2 messages in the spool that the broker has not yet confirmed."""
        return 0 if self._spool is None else len(self._spool.outgoing)

    @property
    def unfinished(self) -> int:
        """The number of `qos` 2 events in the spool whose handshake has not ended."""
        return 0 if self._spool is None else len(self._spool.incoming)

    def publish(
        self,
        topic: str,
        event: Event,
        *,
        qos: Literal[1, 2] = 1,
        promise: Promise | None = None,
        after: After | None = None,
        within_s: float | None = None,
        epoch: int | None = None,
    ) -> Receipt:
        """Publish one event and wait for its confirmation.

        Args:
            topic: The topic.
            event: The event.
            qos: With 2, the event is stored exactly once: it stays in the spool until the broker has stored it. Its id
                must then be unique for this client and topic.
            promise: Raise PromiseNotKept if the confirmation has a lesser promise; see `Client.publish`.
            after: Marks to wait for, as in `Client.publish`, for up to `within_s` seconds, less than the client's `timeout_s`.
            epoch: The epoch that `claim` returned for the event's producer. Not with `qos` 2.

        Returns:
            The confirmation, with the event's offset and durability.

        Raises:
            Refusal: The broker refuses the event.
            PromiseNotKept: The event is stored, and has a lesser promise than `promise`.
            BrokerLost: See the class. With `qos` 2, the event stays in the spool. It is sent when it is published again,
                or when a client with this name and spool is made.
            HandshakeFailed: With `qos` 2: five tries failed. The event stays in the spool, as after BrokerLost.
            SpoolUnusable: With `qos` 2: the spool cannot be written.
            ValueError: The event cannot be written as JSON, or `qos` is 2 and the client has no spool.
        """
        options = confirmation_options(after, within_s, qos) + epoch_option(epoch, qos)
        if qos == 2:
            return kept(self._needed_once().publish_many(topic, [event])[0], promise)
        command = publish_command(topic, event, options)
        self._link.run(command)
        command.outcome()
        return kept(command.receipt, promise)

    def publish_many(
        self,
        topic: str,
        events: Iterable[Event],
        *,
        window: int = 10_000,
        qos: Literal[1, 2] = 1,
        answered: Answered | None = None,
        epoch: int | None = None,
    ) -> list[Receipt]:
        """Publish events in order, and wait until all are confirmed.

        Args:
            topic: The topic.
            events: The events.
            window: Largest number of unconfirmed events.
            qos: With 2, each event is stored exactly once, as `publish` describes. Up to 500 events take part in a
                handshake together, in order.
            answered: Called with each confirmation and refusal in order. It must not raise or use the client. Not with `qos` 2.
            epoch: As in `publish`, for all events.

        Returns:
            The confirmations. One of them may confirm several events; with `qos` 2 there is one for each event.

        Raises:
            Refusal: The first refusal, after the events sent before it have been answered.
            BrokerLost: See the class.
            HandshakeFailed: With `qos` 2: five tries failed. The events stay in the spool.
            ValueError: An event cannot be written as JSON, or `qos` is 2 and the client has no spool.
        """
        options = epoch_option(epoch, qos)
        if qos == 2:
            return self._needed_once().publish_all(topic, events)
        return BlockingPublisher(self._link, topic, max(0, window - CHUNK), answered, options).publish(events)

    def subscribe(
        self,
        topic: str,
        *,
        as_: str | None = None,
        prefetch: int = 200,
        from_: Start = "latest",
        create: bool = False,
        timeout_s: float | None = None,
        tries: int | None = None,
        strikes: Sequence[Cause] | None = None,
        backoff_s: float | None = None,
        max_wait_s: float | None = None,
        qos: Literal[1, 2] = 1,
        ordered: Ordered | None = None,
        begins: bool = False,
    ) -> SyncSubscription:
        """Subscribe to a topic. `Client.subscribe` describes the arguments, which are the same.

        Events that arrive during other calls are kept until the application takes them from the subscription. Between
        calls, the client does not read. The broker ends a connection whose client does not read for a minute, so
        `prefetch` events should not have more than a few MB. Iterate over the subscription for lists of events.

        Raises:
            Refusal: The broker refuses the subscription, for example because the topic does not exist.
            BrokerLost: See the class.
            ValueError: An argument is wrong, or the client already has a subscription to the topic.
        """
        self._link.check()
        request = requests.subscribe_request(
            topic,
            as_=as_,
            prefetch=prefetch,
            create=create,
            timeout_s=timeout_s,
            tries=tries,
            strikes=strikes,
            backoff_s=backoff_s,
            max_wait_s=max_wait_s,
            qos=qos,
            ordered=ordered,
            begins=begins,
        )
        subscription = self._taking(request, from_) if qos == 2 else SyncSubscription(self._link, request, from_)
        table = self._engine.subscriptions
        command = SubscribeCommand(subscription.subscribe_line(), subscription)
        table.add(subscription)
        try:
            subscription.prepare()
            self._link.run(command)
            command.outcome()
        except BaseException:
            table.remove(subscription)
            if command.error is None:
                # The broker may have made the subscription. Leave it before any other command is sent.
                command.abandon()
                self._engine.post(table.abandon(subscription))
            raise
        return subscription

    def unsubscribe(self, subscription: SyncSubscription, *, end: bool = False) -> None:
        """Leave a subscription, or with `end`, end it for all its members, as `Client.unsubscribe` does.

        Raises Refusal, BrokerLost.
        """
        command = self._engine.subscriptions.leave_command(subscription, end=end)
        self._link.run(command)
        command.outcome()

    def _taking(self, request: SubscribeRequest, start: Start) -> SyncSubscription:
        if request.name is None:
            raise ValueError("qos=2 needs a durable subscription; name it with as_=…")
        return self._needed_once().subscription(self._link, request, start)

    def _needed_once(self) -> "SyncOncePublishing":
        if self._spool is None:
            raise ValueError("qos=2 needs a folder for its spool; pass it with SyncClient(…, spool=Path(…))")
        return self._publishing
