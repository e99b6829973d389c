"""Check that events arrive in the order that the broker promises: by offset within a priority."""

from collections.abc import Sequence

from tweetwire import StoredEvent

__all__ = ["OrderCheck"]


class OrderCheck:
    """Checks one connection's subscription. Redeliveries may come in any order, so they are ignored.

    On one connection, the first delivery of an event must have a higher offset than the previous first delivery of its
    priority. `disordered` counts the events that break this rule.
    """

    def __init__(self) -> None:
        self.disordered = 0
        self._connects = 0
        self._last: dict[int, int] = {}

    def note(self, events: Sequence[StoredEvent], connects: int) -> None:
        """Record events that arrived over the client's connection number `connects`."""
        if connects != self._connects:
            self._connects, self._last = connects, {}
        last = self._last
        for event in events:
            if event.attempt == 1:
                if event.offset <= last.get(event.priority, -1):
                    self.disordered += 1
                last[event.priority] = event.offset
