"""The plan of an open-loop publisher: it gives each event a time at which to send it, however fast the broker is.

Event n of a run at `rate` events a second is due n / rate seconds after the beginning. The event states that time, and
a reader measures latency from it, not from the time at which it could be sent. Otherwise a stalled broker would be
judged by the few events that it accepted (coordinated omission).
"""

from random import Random
from typing import Final

from msgspec import Raw

from tweetwire import Event, StoredEvent

__all__ = ["Plan", "due_us", "number_of"]

_DUE: Final = b'{"due":'
_DIGITS: Final = 16
"""The number of digits of a time in microseconds since 1970, for the years 2001 to 2286."""
_MARGIN: Final = len(b'{"due":,"pad":""}') + _DIGITS


class Plan:
    """The events of one publisher to one topic. `sizes` are lengths of `msg` in bytes; priorities are below `priorities`."""

    def __init__(self, name: str, rate: float, *, sizes: list[int], priorities: int, seed: int) -> None:
        self.name = name
        self.rate = rate
        self._pads = [b"x" * max(0, size - _MARGIN) for size in sizes]
        self._priorities = priorities
        self._dice = Random(seed)  # noqa: S311 — it only draws sizes and priorities

    def due_s(self, number: int) -> float:
        """Return the time at which event `number` is due, in seconds from the beginning."""
        return number / self.rate

    def count_due(self, seconds: float) -> int:
        """Return the number of events that are due `seconds` after the beginning."""
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
    """Return the time at which an event was due (microseconds since 1970), None for an event without a plan."""
    message = bytes(event.msg)
    if not message.startswith(_DUE):
        return None
    digits = message[len(_DUE) : len(_DUE) + _DIGITS]
    return int(digits) if digits.isdigit() else None


def number_of(event: StoredEvent) -> tuple[str, int] | None:
    """Return the publisher and the number of an event of a plan, None for any other event."""
    if isinstance(event.producer, str) and isinstance(event.sequence, int):
        return event.producer, event.sequence
    return None
