"""The begun and the unbegun events of a consumer whose client promises to ``begin`` each event."""

from collections.abc import Iterable, Mapping

__all__ = ["Promise"]


class Promise:
    """The begun and the unbegun events of one consumer.

    Always true: no offset is in both `begun` and `unbegun`, and all their offsets are in flight.
    """

    __slots__ = ("_in_flight", "begun", "unbegun")

    def __init__(self, in_flight: Mapping[int, int]) -> None:
        self._in_flight = in_flight
        self.begun: set[int] = set()
        # Events sent to the client, oldest first, with the time (ms) by which the client must begin them
        self.unbegun: dict[int, int] = {}

    @property
    def is_idle(self) -> bool:
        """Whether the client has settled all events that were sent to it."""
        # Do not ask for the events in flight: they include those that are still being read from the log.
        return not self.unbegun and not self.begun

    def begin(self, offsets: Iterable[int]) -> list[int]:
        """Note events in flight as begun. Return those that were not begun before."""
        new = [offset for offset in offsets if offset not in self.begun]
        self.begun.update(new)
        for offset in new:
            self.unbegun.pop(offset, None)
        return new

    def note_sent(self, offsets: Iterable[int], until_ms: int) -> None:
        """Note events sent to the client, which must begin them by `until_ms`."""
        unbegun = (offset for offset in offsets if offset in self._in_flight and offset not in self.begun)
        self.unbegun.update(dict.fromkeys(unbegun, until_ms))

    def begun_in_order(self) -> list[int]:
        """Return the begun events, in the order in which they were delivered."""
        return [offset for offset in self._in_flight if offset in self.begun]

    def overdue(self, now_ms: int) -> list[int]:
        """Return the events that the client did not begin in time."""
        return [offset for offset, until_ms in self.unbegun.items() if until_ms <= now_ms]

    def forget_events(self, offsets: Iterable[int]) -> None:
        """Forget events that are no longer in flight."""
        self.begun.difference_update(offsets)
        for offset in offsets if self.unbegun else ():
            self.unbegun.pop(offset, None)
