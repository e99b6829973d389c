"""How far a source is settled: the id behind which nothing of it would be missed.

Events are settled out of order, since workers and batches overtake each other, and an event with several tweets is settled
with the last of them. The position is the id of the latest event before which everything is settled, so it may be
written at any time, by itself: what is read again from there is there already and changes nothing.
"""

from collections import deque

from msgspec import Struct

__all__ = ["UNTRACKED", "Progress"]

UNTRACKED = -1
"""The number of an event without an id: there is nothing to go on from."""


class _Event(Struct):
    last_id: str
    number: int
    pending: int | None = None


class Progress:
    """The unsettled events of one source.

    `begin` and `withdraw` are called by its reader's thread, the rest by the event loop.
    """

    def __init__(self, position: str = "") -> None:
        self.position = position
        self._order: deque[_Event] = deque()
        self._by_number: dict[int, _Event] = {}
        self._numbers = 0

    def begin(self, last_id: str) -> int:
        """Note an event and return its number."""
        if not last_id:
            return UNTRACKED
        self._numbers += 1
        event = _Event(last_id, self._numbers)
        self._by_number[event.number] = event
        self._order.append(event)
        return event.number

    def withdraw(self, number: int) -> None:
        """Forget an event: it was not let in."""
        if number != UNTRACKED:
            self._order.remove(self._by_number.pop(number))

    def expect(self, number: int, parts: int) -> None:
        """Say into how many parts an event has come apart; with none it is settled."""
        if number != UNTRACKED:
            self._by_number[number].pending = parts
            self._advance()

    def settle(self, number: int) -> None:
        """Note that one part of an event is settled."""
        event = self._by_number.get(number)
        if event is not None and event.pending is not None:
            event.pending -= 1
            self._advance()

    def _advance(self) -> None:
        while self._order and self._order[0].pending == 0:
            event = self._order.popleft()
            del self._by_number[event.number]
            self.position = event.last_id
