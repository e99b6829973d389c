"""The claims of a topic's producers. A claim gives one client the right to publish as a producer, and ends that of all others.

Always true:

- The epoch of a producer grows with each claim, and is on the disk before a client learns it.
- Events, checkpoints and skips of a claimed producer are accepted with its current epoch only. So the events of a client that
  has lost its claim are refused, whenever they arrive.
- At most one connection holds a producer. This only decides whether a claim with ``free`` is accepted. It is not on the disk,
  since no connection outlives the broker.
"""

from typing import NamedTuple

from broker.journal.records import ClaimedRecord
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.fencing import NO_EPOCH

__all__ = ["Claims", "Holder"]


class Holder(NamedTuple):
    """A connection that holds a producer: its number, and the name of its client."""

    number: int
    name: str


class Claims:
    """The epochs of the claimed producers, and the connections that hold them."""

    def __init__(self) -> None:
        # A plain dictionary because each event with a producer looks here, and it is nearly always empty
        self.epochs: dict[str, int] = {}
        self._holders: dict[str, Holder] = {}

    def check(self, producer: str, epoch: int) -> None:
        """Raise Refusal ``fenced`` if a line has another epoch than the producer."""
        current = self.epochs.get(producer, NO_EPOCH)
        if epoch == current:
            return
        given = f"epoch {epoch}" if epoch else "no epoch"
        if current == NO_EPOCH:
            raise Refusal("fenced", f"no client has claimed {producer}, and this line has {given}; claim it again")
        holder = self._holders.get(producer)
        raise Refusal(
            "fenced",
            f"{producer} has epoch {current}{f' and is held by {holder.name}' if holder else ''}, and this line has {given}",
        )

    def check_free(self, producer: str, number: int) -> None:
        """Raise Refusal ``fenced`` if another connection than `number` holds a producer."""
        holder = self._holders.get(producer)
        if holder is not None and holder.number != number:
            raise Refusal("fenced", f"{producer} is held by {holder.name} (connection {holder.number})")

    def holder(self, producer: str) -> Holder | None:
        """Return the connection that holds a producer, None if none does."""
        return self._holders.get(producer)

    def advance(self, producer: str) -> int:
        """Give a producer the next epoch, and return it."""
        self.epochs[producer] = epoch = self.epochs.get(producer, NO_EPOCH) + 1
        return epoch

    def hold(self, producer: str, holder: Holder) -> None:
        """Let a connection hold a producer, in place of the one that did."""
        self._holders[producer] = holder

    def release(self, producer: str, number: int) -> None:
        """Note that connection `number` no longer holds a producer. This changes nothing if another connection does."""
        holder = self._holders.get(producer)
        if holder is not None and holder.number == number:
            del self._holders[producer]

    def forget(self, producer: str) -> None:
        """Forget the claim of a producer."""
        self.epochs.pop(producer, None)
        self._holders.pop(producer, None)

    def records(self, topic: str) -> list[ClaimedRecord]:
        """Return the records that the journal must keep."""
        return [ClaimedRecord(topic, producer, epoch) for producer, epoch in self.epochs.items()]
