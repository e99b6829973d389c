"""Track how far the events of a source are settled, so that a restart can continue there without missing an event.

Events are not settled in order, since workers and batches overtake each other. An event with several tweets is settled with
the last of them. The position is the id of the last event up to which all events are settled. It may be stored at any time,
independently of the tweets, because a tweet that is read twice is stored once.
"""

from collections import deque

from msgspec import Struct

__all__ = ["UNTRACKED", "Progress"]

UNTRACKED = -1
"""The number of an event without an id, which cannot be a position."""


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
        """Register an event and return its number."""
        if not last_id:
            return UNTRACKED
        self._numbers += 1
        event = _Event(last_id, self._numbers)
        self._by_number[event.number] = event
        self._order.append(event)
        return event.number

    def withdraw(self, number: int) -> None:
        """Remove an event that was not admitted to the inbox."""
        if number != UNTRACKED:
            self._order.remove(self._by_number.pop(number))

    def expect(self, number: int, parts: int) -> None:
        """Set the number of parts of an event. An event without parts is settled."""
        if number != UNTRACKED:
            self._by_number[number].pending = parts
            self._advance()

    def settle_event(self, number: int) -> None:
        """Record that one part of an event is settled."""
        event = self._by_number.get(number)
        if event is not None and event.pending is not None:
            event.pending -= 1
            self._advance()

    def _advance(self) -> None:
        while self._order and self._order[0].pending == 0:
            event = self._order.popleft()
            del self._by_number[event.number]
            self.position = event.last_id
