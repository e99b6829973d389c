"""The ledger of one subscription of one topic: events received, settled, redelivered, doubled and lost.

The words have these meanings:

- *received*: an offset arrived at least once. Several connections that share a durable subscription write into one
  ledger, so their union counts. Without ``--as``, each connection has a separate subscription and ledger.
- *acked*: the ack was sent. *settled*: the broker confirmed it. If the connection breaks in between, only the broker knows
  whether the event is settled.
- *redelivered*: an offset that was received but not settled arrives again. That is the broker's promise (at least once)
  after a disconnect, a timeout or a restart, and not a fault.
- *doubled*: an offset that was settled arrives again, whatever its `attempt` is. The work is done twice, which is a fault.
- *lost*: the broker had to deliver an offset and regards it as done, but it never arrived. This is a fault.

Loss cannot be judged from the offsets alone during a run. Events are delivered by priority, so low offsets may arrive long
after high ones, and when the run stops, some events are still pending. So loss is judged once, at the end, from the broker's
balance. The broker sends the balance in one reply, so all its figures are of one moment::

    owed     = unsettled when the run began + published since
    pending  = unsettled at the end - arrived here but not settled
    dead     = given up since the run began, after too many failed tries; in the topic dead_letters
    lost     = owed - received - pending - dead

Unconfirmed acks leave `pending` between two bounds, and some of the dead events may have arrived here. A fault is
reported only if both bounds show it. If nothing is pending, and the number of missing offsets equals the number of lost
events, the report names these offsets. A negative result is a *surplus*: more events arrived than the broker had to
deliver, so an event settled in an earlier run arrived again. That counts as doubled.
"""

from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from subscriber.stress.offsets import OffsetSet

__all__ = ["Balance", "Ledger", "Verdict"]

_RANGES_NAMED = 20
"""The most ranges of missing offsets that a report names. More of them would hide the figures."""


class Balance(Struct, frozen=True):
    """The broker's figures of a subscription at one moment.

    `next` is the offset of the topic's next event, `unsettled` the number of events pending or in flight, and `dead` the
    number of dead letters.
    """

    next: int
    unsettled: int
    dead: int = 0


class Verdict(Struct, frozen=True):
    """The result of one subscription. `missing` lists the first lost offsets as ranges ``(first, last)``."""

    lost: int
    pending: int
    dead: int
    surplus: int
    missing: list[tuple[int, int]]


class Ledger:
    """The record of one subscription, written by all its connections."""

    def __init__(self, topic: str, subscription: str) -> None:
        self.topic = topic
        self.subscription = subscription
        self.received = OffsetSet()
        self.acked = OffsetSet()
        self.settled = OffsetSet()
        self.redelivered = 0
        self.doubled = 0

    def receive(self, offsets: Sequence[int]) -> None:
        """Record the arrival of a batch."""
        for offset in self.received.add_all(offsets):
            if offset in self.settled:
                self.doubled += 1
            else:
                self.redelivered += 1

    def ack(self, offsets: Sequence[int]) -> None:
        """Record that a batch is being acked."""
        self.acked.add_all(offsets)

    def settle(self, offsets: Sequence[int]) -> None:
        """Record that the broker confirmed the acks of a batch."""
        self.settled.add_all(offsets)

    def judge(self, opening: Balance, closing: Balance) -> Verdict:
        """Compare the ledger with the broker's balance at the beginning and at the end of the run."""
        not_received = opening.unsettled + closing.next - opening.next - len(self.received)
        pending_least = max(closing.unsettled - (len(self.received) - len(self.settled)), 0)
        pending_most = max(closing.unsettled - (len(self.received) - len(self.acked)), 0)
        dead = max(closing.dead - opening.dead, 0)
        lost = max(not_received - pending_most - dead, 0)
        return Verdict(
            lost=lost,
            pending=pending_most,
            dead=dead,
            surplus=max(pending_least - not_received, 0),
            missing=self._missing(opening, closing, lost) if lost and not pending_most and not dead else [],
        )

    def _missing(self, opening: Balance, closing: Balance, lost: int) -> list[tuple[int, int]]:
        first = opening.next - opening.unsettled
        if self.received.first is not None:
            first = min(first, self.received.first)
        if self.received.count_missing(first, closing.next) != lost:
            return []  # some of the missing offsets were settled before the run, and it is unknown which ones
        holes = self.received.missing(first, closing.next)
        return [(start, stop - 1) for start, stop in islice(holes, _RANGES_NAMED)]
