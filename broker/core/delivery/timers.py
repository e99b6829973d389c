"""Timers by due time, in a heap that returns each timer once."""

import heapq
from collections.abc import Iterator
from itertools import count
from typing import Generic, TypeVar

__all__ = ["Timers"]

T = TypeVar("T")


class Timers(Generic[T]):
    """Timers by due time (ms).

    A timer that is set twice for the same time is kept once. Each timer is set again when it ends, so a second one would
    never end.
    """

    def __init__(self) -> None:
        # (due ms, tie breaker, owner of the timer)
        self._heap: list[tuple[int, int, T]] = []
        self._set: set[tuple[int, T]] = set()
        self._ties = count()

    def __len__(self) -> int:
        return len(self._heap)

    def start(self, due_ms: int, whose: T) -> None:
        """Start a timer: `expired` yields `whose` once `due_ms` is reached."""
        if (due_ms, whose) not in self._set:
            self._set.add((due_ms, whose))
            heapq.heappush(self._heap, (due_ms, next(self._ties), whose))

    def expired(self, now_ms: int) -> Iterator[T]:
        """Remove and yield the timers that are due, the earliest first.

        The caller may start further timers meanwhile; those that are due are yielded, too.
        """
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, _, whose = heapq.heappop(self._heap)
            self._set.discard((due_ms, whose))
            yield whose
