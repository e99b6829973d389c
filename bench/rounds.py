"""Repeat a measurement, up to a number of rounds and a time limit."""

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["Rounds"]

Figure = TypeVar("Figure")


class Rounds:
    """Runs a measurement up to `most` times, but starts no round that would end later than `seconds` after the first began."""

    def __init__(
        self,
        most: int,
        seconds: float,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._seconds = seconds
        self._tell = tell
        self._clock = clock

    def __call__(self, name: str, run: Callable[[], Figure]) -> list[Figure]:
        """Run the rounds and return their figures, reporting each."""
        found: list[Figure] = []
        began = self._clock()
        while len(found) < self._most:
            found.append(run())
            took = self._clock() - began
            self._tell(f"{name} round {len(found)} of {self._most}: {_words(found[-1])}")
            if took * (len(found) + 1) / len(found) > self._seconds:
                break
        return found


def _words(figure: object) -> str:
    return f"{figure:,.0f}" if isinstance(figure, float) else str(figure)
