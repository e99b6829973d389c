"""A subscription as the blocking client has it: events in lists, when one asks for them."""

from collections import deque
from collections.abc import Iterator, Sequence
from time import monotonic

import msgspec

from broker.errors import Refusal
from broker.events import StoredEvent
from broker.protocol import replies
from broker.sync_client.connection import Connection

__all__ = ["SyncSubscription"]


class SyncSubscription:
    """What a topic delivers to this client; iterate over it, or `take`, for lists of events, and `ack` them.

    `stale` counts acks that came too late.
    """

    def __init__(self, connection: Connection, topic: str, name: str | None) -> None:
        self.topic = topic
        self.name = name
        self.stale = 0
        self._connection = connection
        self._events: deque[StoredEvent] = deque()
        self._has_ended = False

    def __iter__(self) -> Iterator[list[StoredEvent]]:
        """Yield what has arrived, at least one event, until it is unsubscribed. Raises BrokerLost."""
        while events := self.take():
            yield events

    def take(self, within_s: float | None = None) -> list[StoredEvent]:
        """Return what has arrived and was not yet returned; none after `within_s` seconds without any.

        Raises BrokerLost, also of a broker that is silent and does not answer a ``ping``.
        """
        deadline = None if within_s is None else monotonic() + within_s
        while not self._has_ended and not self._is_filled():
            left_s = None if deadline is None else max(0.0, deadline - monotonic())
            if not self._connection.events(left_s) and left_s == 0:
                break
        events = list(self._events)
        self._events.clear()
        return events

    def ack(self, events: Sequence[StoredEvent]) -> None:
        """Settle events; one that comes too late is counted in `stale`. Raises BrokerLost, Refusal."""
        lines = replies.ack_lines(self.topic, [event.offset for event in events])
        self.stale += _late(self._connection.ask_all(lines))

    def nack(
        self, event: StoredEvent, message: str | None = None, *, code: str | int | None = None, trace: str | None = None
    ) -> None:
        """Give an event back, with the reason, which the broker keeps; one that comes too late is counted in `stale`."""
        words = {"message": message, "code": code, "trace": trace}
        error = msgspec.json.encode({name: word for name, word in words.items() if word is not None})
        line = b"nack %b @%d %b\n" % (self.topic.encode(), event.offset, error)
        self.stale += _late(self._connection.ask_all([line]))

    def extend(self, events: Sequence[StoredEvent]) -> None:
        """Start the ack timers of events anew. Raises Refusal ``stale`` if none of them is in flight here any more."""
        refs = " ".join(f"@{event.offset}" for event in events)
        self._connection.ask(f"extend {self.topic} {refs}\n".encode())

    def deliver(self, event: StoredEvent) -> None:
        """The client's: an event has come."""
        self._events.append(event)

    def end(self) -> None:
        """The client's: it was unsubscribed."""
        self._has_ended = True

    def _is_filled(self) -> bool:
        """Whether there is anything to return."""
        return bool(self._events)


def _late(answers: Sequence[bytes | Refusal]) -> int:
    refusals = [answer for answer in answers if isinstance(answer, Refusal)]
    for refusal in refusals:
        if refusal.code != "stale":
            raise refusal
    return len(refusals)
