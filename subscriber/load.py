"""What an open-loop publisher sends, and when: a plan that does not depend on how fast anything goes.

Event n of a run at `rate` events a second is due n / rate seconds after the beginning. It carries that time, so a reader
measures from when it should have been sent, not from when there was room to send it; otherwise a broker that stands still
would be measured by the few events that it let through (coordinated omission).
"""

from random import Random
from typing import Final

from msgspec import Raw

from broker import Event, StoredEvent

__all__ = ["Plan", "due_us", "number_of"]

_DUE: Final = b'{"due":'
_DIGITS: Final = 16
"""Of microseconds since 1970, from 2001 to 2286."""
_MARGIN: Final = len(b'{"due":,"pad":""}') + _DIGITS


class Plan:
    """The events of one publisher to one topic. `sizes` are lengths of `msg` (bytes), priorities 0 … `priorities` - 1."""

    def __init__(self, name: str, rate: float, *, sizes: list[int], priorities: int, seed: int) -> None:
        self.name = name
        self.rate = rate
        self._pads = [b"x" * max(0, size - _MARGIN) for size in sizes]
        self._priorities = priorities
        self._dice = Random(seed)  # noqa: S311 — lots, not secrets

    def due_s(self, number: int) -> float:
        """When event `number` is due, in seconds from the beginning."""
        return number / self.rate

    def count_due(self, seconds: float) -> int:
        """How many events are due `seconds` after the beginning."""
        return int(seconds * self.rate) + 1 if seconds >= 0 else 0

    def event(self, number: int, began_at_s: float) -> Event:
        """Return event `number` of a run that began at `began_at_s` (seconds since 1970)."""
        due = round((began_at_s + self.due_s(number)) * 1e6)
        dice = self._dice
        pad = self._pads[0] if len(self._pads) == 1 else dice.choice(self._pads)
        return Event(
            id=f"{self.name}-{number}",
            priority=int(dice.random() * self._priorities),
            msg=Raw(b'%b%d,"pad":"%b"}' % (_DUE, due, pad)),
            producer=self.name,
            sequence=number,
        )


def due_us(event: StoredEvent) -> int | None:
    """When an event was due (microseconds since 1970), None for one that is not of a plan."""
    message = bytes(event.msg)
    if not message.startswith(_DUE):
        return None
    digits = message[len(_DUE) : len(_DUE) + _DIGITS]
    return int(digits) if digits.isdigit() else None


def number_of(event: StoredEvent) -> tuple[str, int] | None:
    """Return the publisher and the number of an event of a plan."""
    if isinstance(event.producer, str) and isinstance(event.sequence, int):
        return event.producer, event.sequence
    return None
