"""Learns which acks the broker has confirmed, without waiting for each.

Replies keep the order of the commands of their connection. So the answer to a ping behind some acks says that all of them
were answered, if the connection is still the one that they were sent on; and none was too late, if the count of stale
ones has not grown. Where either is not so, the acks stay uncertain: the broker gives again what it did not take.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from broker import Client, Subscription
from subscriber.ledger import Ledger

__all__ = ["Confirmation"]


@dataclass(eq=False, slots=True)
class Acked:
    """Acks that were sent, and what the connection was like then."""

    subscription: Subscription
    ledger: Ledger
    offsets: Sequence[int]
    connects: int
    stale: int


class Confirmation:
    """Settles in the ledgers what was acked over one client, in the background."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: list[Acked] = []
        self._has_waiting = anyio.Event()

    def note(self, subscription: Subscription, ledger: Ledger, offsets: Sequence[int]) -> None:
        """Note, before they are sent, that acks of `offsets` are on their way."""
        self._waiting.append(Acked(subscription, ledger, offsets, self._client.connects, subscription.stale))
        self._has_waiting.set()

    async def run(self) -> None:
        """Confirm what is noted, for ever."""
        while True:
            await self._has_waiting.wait()
            await self.confirm()

    async def confirm(self) -> None:
        """Confirm what has been noted so far."""
        waiting = list(self._waiting)
        await self._client.ping()
        del self._waiting[: len(waiting)]
        if not self._waiting:
            self._has_waiting = anyio.Event()
        for acked in waiting:
            is_same_connection = acked.connects == self._client.connects
            if is_same_connection and acked.stale == acked.subscription.stale:
                acked.ledger.settle(acked.offsets)
