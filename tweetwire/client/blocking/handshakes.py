"""Run the exactly-once handshakes in a thread, to publish messages and to take and finish events."""

import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeVar

from tweetwire.client.blocking.link import BlockingLink
from tweetwire.client.blocking.subscription import SyncSubscription
from tweetwire.client.exactly_once import OnceConsuming, OncePublishing, Spool
from tweetwire.client.exactly_once.publishing import Key, PublishResult
from tweetwire.client.exactly_once.spool import Incoming
from tweetwire.client.exactly_once.steps import TOGETHER, Answer, Ask, Handshake, Pause, Wish
from tweetwire.client.logging import client_logger
from tweetwire.protocol.errors import BrokerError, HandshakeFailed
from tweetwire.protocol.events import Event, StoredEvent
from tweetwire.protocol.replies import Receipt
from tweetwire.protocol.requests import Start, SubscribeRequest

__all__ = ["BlockingHandshakes", "SyncExactlyOnceSubscription", "SyncOncePublishing"]

T = TypeVar("T")

logger = client_logger(__name__)


class BlockingHandshakes:
    """Carries out the requests of handshakes over `link` and `spool`. BrokerLost and ProtocolError end a handshake at once."""

    def __init__(self, link: BlockingLink, spool: Spool) -> None:
        self.spool = spool
        self._link = link

    def run(self, handshake: Handshake[T]) -> T:
        """Run a handshake to its end, and return its result."""
        try:
            wish = next(handshake)
            while True:
                wish = handshake.send(self._grant(wish))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _grant(self, wish: Wish) -> list[Answer]:
        if isinstance(wish, Ask):
            return list(self._link.ask_all(wish.lines)) if wish.lines else []
        if isinstance(wish, Pause):
            time.sleep(wish.seconds)
        else:
            self.spool.sync_now()
        return []


class SyncOncePublishing:
    """Publishes messages exactly once, including those that an earlier process left in the spool."""

    def __init__(self, handshakes: BlockingHandshakes) -> None:
        self.handshakes = handshakes
        self._publishing = OncePublishing(handshakes.spool)

    def publish_many(self, topic: str, events: Sequence[Event]) -> list[Receipt]:
        """Publish events exactly once. After all were tried, raises the Refusal or HandshakeFailed of the first failure."""
        keys = self._publishing.keep(topic, events)
        results = self._carry_over(list(dict.fromkeys(keys)))
        failed = next((result for result in results.values() if isinstance(result, BrokerError)), None)
        if failed is not None:
            raise failed
        return [result for key in keys if isinstance(result := results[key], Receipt)]

    def publish_all(self, topic: str, events: Iterable[Event]) -> list[Receipt]:
        """Publish any number of events exactly once, as many together as one handshake may have."""
        rest = iter(events)
        chunks = iter(lambda: list(islice(rest, TOGETHER)), [])
        return [receipt for chunk in chunks for receipt in self.publish_many(topic, chunk)]

    def subscription(
        self, link: BlockingLink, request: SubscribeRequest, start: Start
    ) -> "SyncExactlyOnceSubscription":
        """Return a subscription that hands each event over once."""
        return SyncExactlyOnceSubscription(link, request, start, self.handshakes)

    def resume(self) -> None:
        """Publish the messages that an earlier process left in the spool."""
        left = self._publishing.left()
        if left:
            logger.info("sending messages left in the spool", messages=len(left))
        for (topic, id_), result in self._carry_over(left).items():
            if isinstance(result, BrokerError):
                logger.error("cannot send a message left in the spool", topic=topic, id=id_, reason=str(result))

    def _carry_over(self, keys: Sequence[Key]) -> dict[Key, PublishResult]:
        results: dict[Key, PublishResult] = {}
        for batch in self._publishing.side_by_side(keys):
            results |= self.handshakes.run(self._publishing.carry_over(batch))
        return results


class SyncExactlyOnceSubscription(SyncSubscription):
    """A `SyncSubscription` that hands each event over once. Its `nack` raises ValueError, and its `extend` does nothing."""

    def __init__(
        self, link: BlockingLink, request: SubscribeRequest, start: Start, handshakes: BlockingHandshakes
    ) -> None:
        super().__init__(link, request, start)
        assert request.name is not None  # noqa: S101 — the caller has checked this
        self._handshakes = handshakes
        self._consuming = OnceConsuming(handshakes.spool, request.topic, request.name)
        self._untaken: dict[tuple[str, str, int], Incoming] = {}
        self._acked: list[Incoming] = []

    def detach(self) -> None:
        """Note that the connection was lost. The broker redelivers the events that were not taken. Called by the engine."""
        self._is_attached = False
        self._consuming.drop_arrived()

    def prepare(self) -> None:
        """Continue with the events that an earlier process left. Called by the client.

        Raises Refusal, HandshakeFailed, BrokerLost.
        """
        left = self._consuming.left()
        self._events += left.owned
        self._finish(left.acked)
        self._take(left.arrived)

    def forget(self) -> None:
        """Drop the spool's events. Called by the engine.

        The broker has ended the subscription and its handshakes.
        """
        self._consuming.forget()
        self._acked = []

    def ack(self, events: Sequence[StoredEvent]) -> None:
        """Ack events: write the acks to this client's disk, then make the broker settle the events.

        An event that this subscription does not own is counted in `stale`. The call also takes newly arrived events, so it
        raises the errors of `take` as well.

        Raises:
            HandshakeFailed: Five tries to settle an event failed. The next call of `ack` or the next client tries again.
            Refusal: The broker permanently refuses to settle an event. Only the next client tries again.
            BrokerLost: See `SyncClient`.
        """
        acked = self._consuming.ack(events)
        self.stale += len(events) - len(acked)
        self._handshakes.spool.sync_now()
        self._finish(acked)
        self._take_arrived()

    def nack(
        self, event: StoredEvent, message: str | None = None, *, code: str | int | None = None, trace: str | None = None
    ) -> None:
        """Raise ValueError: an event that this client has taken from the broker cannot be given back."""
        raise ValueError("an event of a subscription with qos=2 cannot be given back; ack it")

    def extend(self, events: Sequence[StoredEvent]) -> None:
        """Do nothing: a taken event has no ack timer."""

    def _arrive(self, events: list[StoredEvent]) -> None:
        """Queue arrived events. They are handed over after they have been taken."""
        self._consuming.arrive(events, self._request.prefetch)

    def _is_filled(self) -> bool:
        self._take_arrived()
        return super()._is_filled()

    def _take_arrived(self) -> None:
        """Take all arrived events, even before the application asks for them: until then their ack timers run."""
        while self._link.listen(0):
            pass
        while entries := self._consuming.next_arrived():
            self._take(entries)

    def _take(self, entries: list[Incoming]) -> None:
        """Take events from the broker, first those that an earlier call could not take because the connection was lost."""
        # Store the events by key, because an event that was not taken earlier may have been delivered again.
        self._untaken |= {entry.key: entry for entry in entries}
        while chunk := list(islice(self._untaken.values(), TOGETHER)):
            taken = self._handshakes.run(self._consuming.take(chunk))
            for entry in chunk:
                del self._untaken[entry.key]
            self._events += taken.given
            self._finish(taken.acked)
            if taken.failures:
                raise taken.failures[0][1]

    def _finish(self, entries: list[Incoming]) -> None:
        """Make the broker settle acked events, first those that it did not settle earlier."""
        self._acked += entries
        while chunk := self._acked[:TOGETHER]:
            failures = self._handshakes.run(self._consuming.finish(chunk))
            # An event that the broker refuses permanently is not tried again: it would fail every later ack, too.
            again = {entry.key for entry, failure in failures if isinstance(failure, HandshakeFailed)}
            self._acked = [entry for entry in chunk if entry.key in again] + self._acked[len(chunk) :]
            if failures:
                raise failures[0][1]
