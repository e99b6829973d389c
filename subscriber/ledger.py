"""What one subscription of one topic owes and has given: received, settled, redelivered, doubled, lost.

What the words mean here, exactly:

- *received*: an offset arrived at least once. Several connections that share a durable subscription write into one
  ledger, so their union counts; without ``--as`` each connection has a subscription, and a ledger, of its own.
- *acked*: the ack was sent; *settled*: the broker confirmed it. Between the two a connection may break, and then only
  the broker knows whether the event is settled.
- *redelivered*: an offset that was received but not settled arrives again. That is the broker's promise
  (at least once) and no fault: after a disconnect, a timeout, a restart.
- *doubled*: an offset that was settled arrives again, whatever its attempt says. Work is done twice: a fault.
- *lost*: an offset the broker owed and regards as done, and that never arrived. A fault.

Loss cannot be judged from the offsets alone while things move: events go out by priority, so low offsets may rightly
arrive long after high ones, and at a stop some are rightly still pending. So it is judged once, at the end, by the
broker's own balance, which it gives in one reply and therefore of one moment::

    owed     = unsettled when the run began + published since
    pending  = unsettled at the end, less what arrived here and is not settled
    dead     = given up on since the run began, after too many failed tries; it is in the topic dead_letters
    lost     = owed - received - pending - dead

Acks without confirmation leave `pending` between two bounds, and of what is dead some may have arrived here: a fault is
claimed only where both bounds show it.
Where nothing is pending, and as many offsets are missing as are lost, these are named. A balance below nothing is a
*surplus*: more arrived than was owed, so something settled in an earlier run came again, which counts as doubled.
"""

from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from subscriber.offsets import OffsetSet

__all__ = ["Balance", "Ledger", "Verdict"]

_RANGES_NAMED = 20
"""Ranges of missing offsets that a report names; more would bury the figure."""


class Balance(Struct, frozen=True):
    """What the broker says of a subscription at one moment.

    `next` is the offset that the topic's next event will get; `unsettled` counts what is pending and in flight, `dead`
    what was given up on.
    """

    next: int
    unsettled: int
    dead: int = 0


class Verdict(Struct, frozen=True):
    """How it went for one subscription; `missing` names what was lost, as ranges ``(first, last)``, the first few."""

    lost: int
    pending: int
    dead: int
    surplus: int
    missing: list[tuple[int, int]]


class Ledger:
    """The account of one subscription, fed by every connection on it."""

    def __init__(self, topic: str, subscription: str) -> None:
        self.topic = topic
        self.subscription = subscription
        self.received = OffsetSet()
        self.acked = OffsetSet()
        self.settled = OffsetSet()
        self.redelivered = 0
        self.doubled = 0

    def receive(self, offsets: Sequence[int]) -> None:
        """Note the arrival of a batch."""
        for offset in self.received.add_all(offsets):
            if offset in self.settled:
                self.doubled += 1
            else:
                self.redelivered += 1

    def ack(self, offsets: Sequence[int]) -> None:
        """Note that a batch is being acked."""
        self.acked.add_all(offsets)

    def settle(self, offsets: Sequence[int]) -> None:
        """Note that the broker confirmed the acks of a batch."""
        self.settled.add_all(offsets)

    def judge(self, opening: Balance, closing: Balance) -> Verdict:
        """Balance the account against what the broker said when the run began and when it ended."""
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
            return []  # some were settled before the run, and nobody here knows which
        holes = self.received.missing(first, closing.next)
        return [(start, stop - 1) for start, stop in islice(holes, _RANGES_NAMED)]
