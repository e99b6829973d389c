"""Find out which acks the broker has confirmed, without waiting for each.

Replies come in the order of the commands of their connection. So the reply to a ping proves that the acks sent before
it on the same connection were answered. If the count of stale acks has not grown either, none of these acks was late.
Otherwise the acks stay uncertain, and the broker delivers the events again that it has not settled.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from subscriber.stress.ledger import Ledger
from tweetwire import Client, Subscription

__all__ = ["Confirmation"]


@dataclass(eq=False, slots=True)
class Acked:
    """Acks that were sent, and the state of the connection at that time."""

    subscription: Subscription
    ledger: Ledger
    offsets: Sequence[int]
    connects: int
    stale: int


class Confirmation:
    """Settles acks of one client in the ledgers, in the background."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: list[Acked] = []
        self._has_waiting = anyio.Event()

    def note(self, subscription: Subscription, ledger: Ledger, offsets: Sequence[int]) -> None:
        """Record acks of `offsets`, before they are sent."""
        self._waiting.append(Acked(subscription, ledger, offsets, self._client.connects, subscription.stale))
        self._has_waiting.set()

    async def run(self) -> None:
        """Confirm recorded acks until cancelled."""
        while True:
            await self._has_waiting.wait()
            await self.confirm()

    async def confirm(self) -> None:
        """Confirm all acks recorded so far."""
        waiting = list(self._waiting)
        await self._client.ping()
        del self._waiting[: len(waiting)]
        if not self._waiting:
            self._has_waiting = anyio.Event()
        for acked in waiting:
            is_same_connection = acked.connects == self._client.connects
            if is_same_connection and acked.stale == acked.subscription.stale:
                acked.ledger.settle(acked.offsets)
