"""The async client: commands to a broker, publishing and subscriptions."""

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tweetwire.client.aio.commands import AsyncCommands
from tweetwire.client.aio.handshakes import AsyncOncePublishing
from tweetwire.client.aio.lifetime import AsyncLifetime
from tweetwire.client.aio.link import AsyncLink
from tweetwire.client.aio.marks import AsyncMarks
from tweetwire.client.aio.once_publisher import OncePublisher
from tweetwire.client.aio.once_subscription import ExactlyOnceSubscription
from tweetwire.client.aio.publisher import OnConfirm, Publisher
from tweetwire.client.aio.subscription import Subscription
from tweetwire.client.engine import ClientEngine
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

__all__ = ["Client"]


class Client(AsyncLifetime, AsyncCommands, AsyncMarks):
    """An async client of the broker that reconnects by itself. Use it in an ``async with`` block.

    After a lost connection, the client connects again, with growing pauses and without a limit of time. Its subscriptions
    continue, and commands without a reply are sent again. So a publish whose reply was lost may be stored twice. This does
    not happen if its event has a producer and a sequence, or if it is published with `qos` 2.

    The client detects a lost broker in three ways:

    - The connection ends.
    - The broker's machine no longer answers: after a minute, or after five minutes if data was sent to it meanwhile.
    - The client only waits for events and receives nothing for `timeout_s` seconds. It then sends a ``ping``, and
      receives no answer for `timeout_s` seconds more.

    Args:
        address: Address of the broker, such as ``localhost:8000``.
        name: Name of this client, or of a user if the broker has users.
        token: Token of that user.
        tls: TLS context for the connection; None for a connection without TLS.
        connect_timeout_s: Longest wait for the first connection, in seconds.
        timeout_s: Longest silence of the broker while the client waits for events, in seconds, as described above. It is
            also the longest time for one attempt to reconnect.
        spool: Folder for the client's half of the exactly-once handshakes, which `qos` 2 needs. The file in it has the
            client's name. Messages that an earlier process left there are sent first.
        answer_s: Time after which a step of a handshake is repeated if it has no answer, in seconds.
        leave_timeout_s: Longest wait for outstanding replies when the block is left, in seconds.
        line_bytes_max: Longest line that the client accepts from the broker, in bytes.

    Raises:
        BrokerUnreachable: On entering: no broker answered within `connect_timeout_s` seconds.
        TlsFailed: On entering: client and broker do not agree on TLS.
        SpoolTaken: On entering: another process uses the same name and folder.
        SpoolUnusable: On entering: the spool cannot be read or written.
        ValueError: `name` or `token` cannot be part of a line.
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
        leave_timeout_s: float = 5.0,
        line_bytes_max: int = 64 << 20,
    ) -> None:
        self._line_bytes_max = line_bytes_max
        self._read_wait_s = longest_wait_s(timeout_s)
        engine = ClientEngine(requests.hello_line(name, token), line_bytes_max)
        super().__init__(
            AsyncLink(address, name, engine, tls=tls, timeout_s=timeout_s),
            name,
            spool,
            connect_timeout_s=connect_timeout_s,
            answer_s=answer_s,
            leave_timeout_s=leave_timeout_s,
        )

    async def publish(
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
            promise: Raise PromiseNotKept if the confirmation has a lesser promise. The event is still stored.
            after: Marks that must pass the event before it is confirmed as ``replicated``: one name, or several. An empty
                list means none. None means those that the topic waits for, see `confirm`. Not with `qos` 2.
            within_s: Time after which the event is confirmed with a lesser promise, in seconds. None means the topic's time.
            epoch: The epoch that `claim` returned for the event's producer. Not with `qos` 2.

        Returns:
            The confirmation, with the event's offset and durability.

        Raises:
            Refusal: The broker refuses the event.
            PromiseNotKept: The event is stored, and has a lesser promise than `promise`.
            HandshakeFailed: With `qos` 2: five tries failed. The event stays in the spool, and the next client with this
                name and spool sends it.
            SpoolUnusable: With `qos` 2: the spool cannot be written.
            ValueError: The event cannot be written as JSON, or `qos` is 2 and the client has no spool.
            ClientClosed: The client is left before the confirmation comes.
        """
        self._owner.check()
        options = confirmation_options(after, within_s, qos) + epoch_option(epoch, qos)
        if qos == 2:
            return kept(await self._needed_once().publish(topic, event), promise)
        command = publish_command(topic, event, options)
        await self._link.outcome(self._link.send(command))
        return kept(command.receipt, promise)

    def publisher(
        self,
        topic: str,
        *,
        window: int = 10_000,
        on_confirm: OnConfirm | None = None,
        qos: Literal[1, 2] = 1,
        after: After | None = None,
        within_s: float | None = None,
        epoch: int | None = None,
    ) -> Publisher:
        """Return a pipelined publisher. Use it in an ``async with`` block.

        Args:
            topic: The topic.
            window: Largest number of unconfirmed events.
            on_confirm: Called with each receipt, in the order of publishing. A receipt may confirm several events.
            qos: With 2, each event is stored exactly once, as `publish` describes. Up to 500 events take part in a
                handshake together, in order.
            after: As in `publish`. The receipts say which events are ``replicated``.
            within_s: As in `publish`.
            epoch: As in `publish`, for all events.

        Raises:
            ValueError: `qos` is 2 and the client has no spool.
        """
        options = confirmation_options(after, within_s, qos) + epoch_option(epoch, qos)
        if qos == 2:
            self._owner.check()
            once = self._needed_once()
            return OncePublisher(self._link, topic, window, on_confirm, publishing=once, tasks=self._tasks)
        return Publisher(self._link, topic, window, on_confirm, options)

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
        ordered: Ordered | None = None,
        begins: bool = False,
    ) -> Subscription:
        """Subscribe to a topic, or to all topics that match a pattern. A client can have one subscription to each topic.

        The arguments `timeout_s` to `max_wait_s`, and `ordered`, are the policy of the subscription. If one is None, a new
        subscription gets the broker's default, and an existing one keeps its value.

        Args:
            topic: The topic, or a pattern in which ``*`` stands for one word between dots, and ``>`` at the end for the
                rest: ``orders.*``, ``tenant.>``. Topics that are created later belong to it.
            as_: Name of a durable subscription, which stays when this client leaves. Without a name, the subscription
                ends with this client.
            prefetch: Largest number of events in flight to this client, from 1 to 100,000.
            from_: Where a new subscription starts: ``latest``, ``earliest``, an offset, or a time (ISO 8601).
            create: Create the topic if it does not exist.
            timeout_s: Time for the ack of a delivered event, in seconds. Then the event is delivered again.
            tries: Number of failed tries after which an event becomes a dead letter.
            strikes: The causes that count as a failed try: ``nack``, ``timeout`` and ``disconnect``.
            backoff_s: Pause before the first redelivery, in seconds. It doubles with each failed try.
            max_wait_s: Time in seconds after which a waiting event is delivered before events of higher priority; 0
                means never.
            qos: With 2, each event is handed over exactly once; this needs a spool and `as_`. If an earlier process
                received the event and did not ack it, the event is handed over again with an `attempt` above 1.
            ordered: With ``"key"``, the events of one key go to one consumer of the subscription at a time, in the order of
                their offsets, whatever their priority. Handle the events of a key one after the other. After a nack, the broker
                takes back the later events of its key that this client has, and delivers them again. ``"none"`` ends the order.
            begins: Promise to call `Subscription.mark_begun` for each event before working on it. A lost connection then
                counts as a failed try only for begun events.

        Returns:
            The subscription. Iterate over it for lists of events.

        Raises:
            Refusal: The broker refuses the subscription, for example because the topic does not exist.
            ValueError: An argument is wrong, or the client already has a subscription to the topic or to one of the topics.
            ClientClosed: The client is left before the reply comes.
        """
        self._owner.check()
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
        await self._subscribing.wait_until_left(topic)
        subscription = self._taking(request, from_) if qos == 2 else Subscription(self._link, request, from_)
        await self._subscribing.open(subscription)
        if isinstance(subscription, ExactlyOnceSubscription):
            self._tasks.start_soon(subscription.serve)
        return subscription

    def _taking(self, request: SubscribeRequest, start: Start) -> ExactlyOnceSubscription:
        if request.name is None:
            raise ValueError("qos=2 needs a durable subscription; name it with as_=…")
        return ExactlyOnceSubscription(self._link, request, start, self._needed_once().handshakes)

    def _needed_once(self) -> AsyncOncePublishing:
        if self._spool is None:
            raise ValueError("qos=2 needs a folder for its spool; pass it with Client(…, spool=Path(…))")
        return self._publishing

    async def unsubscribe(self, subscription: Subscription, *, end: bool = False) -> None:
        """Leave a subscription. Events in flight to this client go back to the broker without a failed try.

        A durable subscription stays, with its backlog and its other members. Any other subscription ends.

        Args:
            subscription: The subscription.
            end: End a durable subscription for all its members, and drop its backlog.

        Raises:
            Refusal: The broker refuses the command.
        """
        await self._subscribing.leave(subscription, end=end)
