"""A subscription of the blocking client: lists of events on request, and their acks and nacks."""

from collections.abc import Callable, Iterator, Sequence
from time import monotonic

from tweetwire.client.blocking.link import BlockingLink
from tweetwire.client.engine import SubscriptionState
from tweetwire.client.engine.commands import AckCommand
from tweetwire.protocol import replies, requests
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.events import StoredEvent
from tweetwire.protocol.requests import Start, SubscribeRequest

__all__ = ["SyncSubscription"]


class SyncSubscription(SubscriptionState):
    """A subscription to a topic. Iterate over it or call `take` to get lists of events, and `ack` them.

    Make one with `SyncClient.subscribe`.

    Attributes:
        topic: The topic or the pattern.
        is_pattern: Whether `topic` is a pattern. Then each event names its topic.
        name: Name of a durable subscription, else None.
        known_as: The broker's name for the subscription.
        stale: Number of events that were acked, nacked or begun too late: they were no longer in flight here.
        refused: Number of events whose ack, nack or begin the broker refused for another reason, which was raised.
    """

    def __init__(self, link: BlockingLink, request: SubscribeRequest, start: Start) -> None:
        super().__init__(request, start)
        self._link = link

    def __iter__(self) -> Iterator[list[StoredEvent]]:
        """Yield lists of at least one event, until this client leaves the subscription. Raises the errors of `take`."""
        while events := self.take():
            yield events

    def take(self, within_s: float | None = None) -> list[StoredEvent]:
        """Return the events that have arrived since the last call.

        Args:
            within_s: Longest wait for an event, in seconds; None means no limit.

        Returns:
            The events. The list is empty if none came in time, or if this client has left the subscription.

        Raises:
            SubscriptionEnded: Another client has ended the subscription.
            Refusal: The broker refuses to continue the subscription after a lost connection.
            ProtocolError: The server does not follow the protocol.
            BrokerLost: See `SyncClient`.
        """
        self._link.check()
        deadline = None if within_s is None else monotonic() + within_s
        while not self._has_ended and not self._is_filled():
            left_s = None if deadline is None else max(0.0, deadline - monotonic())
            if not self._link.listen(left_s) and left_s == 0:
                break
        if self._error is not None:
            raise self._error
        return self._take_events()

    def ack(self, events: Sequence[StoredEvent]) -> None:
        """Ack events, which settles them, and wait for the broker's replies.

        An event that is no longer in flight here is counted in `stale`. An ack that is lost with its connection is not
        sent again: the event is delivered again.

        Args:
            events: Events of this subscription.

        Raises:
            Refusal: The broker refuses an ack for another reason.
            BrokerLost: See `SyncClient`.
        """
        self._settle(requests.ack_lines, events)

    def mark_begun(self, events: Sequence[StoredEvent]) -> None:
        """Note that this client begins to work on events, for a subscription made with `begins`.

        An event that is no longer in flight here is counted in `stale`.

        Args:
            events: Events of this subscription.

        Raises:
            Refusal: The broker refuses the command for another reason.
            BrokerLost: See `SyncClient`.
        """
        self._settle(requests.begin_lines, events)

    def nack(
        self, event: StoredEvent, message: str | None = None, *, code: str | int | None = None, trace: str | None = None
    ) -> None:
        """Nack an event, so that it is delivered again or becomes a dead letter.

        The broker keeps at most 16 KiB of the reason. If the event is no longer in flight here, it is counted in `stale`.

        Args:
            event: An event of this subscription.
            message: Why the event failed. If it is too long, only its beginning is sent.
            code: An error code of the application.
            trace: A traceback. If it is too long, only its end is sent.

        Raises:
            Refusal: The broker refuses the nack for another reason.
            BrokerLost: See `SyncClient`.
        """
        self._send([requests.nack_line(event.topic, event.offset, message, code, trace)])

    def extend(self, events: Sequence[StoredEvent]) -> None:
        """Restart the ack timers of events.

        Args:
            events: Events of this subscription.

        Raises:
            Refusal: With the code ``stale`` if none of the events is in flight here any more.
            BrokerLost: See `SyncClient`.
        """
        stale: Refusal | None = None
        is_extended = not events
        for topic, offsets in self._by_topic(events) if events else ():
            try:
                self._link.ask(requests.extend_line(topic, offsets))
                is_extended = True
            except Refusal as refusal:
                if refusal.code not in replies.NOT_IN_FLIGHT:
                    raise
                stale = refusal
        if stale is not None and not is_extended:
            raise stale

    def prepare(self) -> None:
        """Prepare the subscription before its command is sent. Called by the client."""

    def _settle(self, lines_of: Callable[[str, Sequence[int]], list[bytes]], events: Sequence[StoredEvent]) -> None:
        self._send([line for topic, offsets in self._by_topic(events) for line in lines_of(topic, offsets)])

    def _send(self, lines: Sequence[bytes]) -> None:
        """Send acks, nacks or begins, and count those that come too late. Raises the first Refusal for another reason."""
        commands = [AckCommand(line, self, replies.unsettled(line, 0)) for line in lines]
        self._link.post(commands)
        for command in commands:
            if isinstance(command.error, Refusal) and command.error.code not in replies.NOT_IN_FLIGHT:
                raise command.error

    def _is_filled(self) -> bool:
        """Return whether there are events to hand over."""
        return bool(self._events)
