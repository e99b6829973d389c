"""What one subscription of one topic owes and has given: received, settled, redelivered, doubled, lost.

What the words mean here, exactly:

- *received*: an offset arrived at least once. Several connections that share a durable subscription write into one
  ledger, so their union counts; without ``--as`` each connection has a subscription, and a ledger, of its own.
- *settled*: the broker confirmed the ack. An ack without a confirmation (the connection broke first) settles nothing.
- *redelivered*: an offset that was received but not settled arrives again. That is the broker's promise
  (at least once) and no fault: after a disconnect, a timeout, a restart.
- *doubled*: an offset that was settled arrives again, whatever its attempt says. Somebody's work is done twice: a fault.
- *lost*: an offset the broker owed and regards as done, and that never arrived. A fault.

Loss cannot be judged from the offsets alone while things move: events go out by priority, so low offsets may rightly
arrive long after high ones, and at a stop some are rightly still pending. So it is judged once, at the end, by the
broker's own balance, which it gives in one reply and therefore of one moment::

    owed     = unsettled when the run began + published since
    arrived  = received, at least once
    pending  = unsettled at the end, less what arrived here and was not acked
    lost     = owed - arrived - pending

Where nothing is pending, the offsets lost are the missing ones themselves and are named.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from msgspec import Struct

from broker import StoredEvent
from subscriber.offsets import OffsetSet

__all__ = ["Balance", "Ledger", "Verdict"]

_RANGES_NAMED = 20
"""Ranges of missing offsets that a report names; more would bury the figure."""


class Balance(Struct, frozen=True):
    """What the broker says of a subscription at one moment.

    `next` is the offset the next event of the topic will get, `unsettled` counts pending and in flight, `settled` is the
    number of events acked so far, by whomever.
    """

    next: int
    unsettled: int


class Verdict(Struct, frozen=True):
    """How the run went for one subscription; `missing` names ranges ``[first, last]`` of offsets, the first few."""

    lost: int
    pending: int
    missing: list[tuple[int, int]]


class Ledger:
    """The account of one subscription, fed by every connection on it."""

    def __init__(self, topic: str, subscription: str) -> None:
        self.topic = topic
        self.subscription = subscription
        self.received = OffsetSet()
        self.settled = OffsetSet()
        self.redelivered = 0
        self.doubled = 0

    def receive(self, events: Iterable[StoredEvent]) -> None:
        """Note the arrival of a batch."""
        add = self.received.add
        for event in events:
            if not add(event.offset):
                self._note_again(event.offset)

    def settle(self, events: Iterable[StoredEvent]) -> None:
        """Note that the broker confirmed the acks of a batch."""
        add = self.settled.add
        for event in events:
            add(event.offset)

    def judge(self, opening: Balance, closing: Balance) -> Verdict:
        """Balance the account against what the broker said when the run began and when it ended."""
        owed = opening.unsettled + closing.next - opening.next
        held_here = len(self.received) - len(self.settled)
        pending = closing.unsettled - held_here
        lost = owed - len(self.received) - pending
        return Verdict(lost=max(lost, 0), pending=max(pending, 0), missing=self._missing(closing) if lost > 0 else [])

    def _missing(self, closing: Balance) -> list[tuple[int, int]]:
        first = self.received.first if self.received.first is not None else closing.next
        holes = islice(self.received.missing(first, closing.next), _RANGES_NAMED)
        return [(start, stop - 1) for start, stop in holes]

    def _note_again(self, offset: int) -> None:
        if offset in self.settled:
            self.doubled += 1
        else:
            self.redelivered += 1


def total(ledgers: Sequence[Ledger], figure: str) -> int:
    """Add up one counter over several ledgers."""
    return sum(getattr(ledger, figure) for ledger in ledgers)
