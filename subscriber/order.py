"""Whether events come in the order that the broker promises: within a priority, by offset."""

from collections.abc import Sequence

from broker import StoredEvent

__all__ = ["OrderCheck"]


class OrderCheck:
    """Watches one connection's subscription. What comes again, after a failed try, comes in no order, so it is left out.

    An event that comes for the first time must have a higher offset than the last one of its priority that came for the
    first time over the same connection. `disordered` counts those that have not.
    """

    def __init__(self) -> None:
        self.disordered = 0
        self._connects = 0
        self._last: dict[int, int] = {}

    def note(self, events: Sequence[StoredEvent], connects: int) -> None:
        """Note what came over the client's connection number `connects`."""
        if connects != self._connects:
            self._connects, self._last = connects, {}
        last = self._last
        for event in events:
            if event.attempt == 1:
                if event.offset <= last.get(event.priority, -1):
                    self.disordered += 1
                last[event.priority] = event.offset
