"""Numbered things in any order → the same things in order.

Always true: what has been released has the numbers from the first one to `next` - 1, each once, save those that were
given up; what is held has higher numbers than `next`.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

__all__ = ["Sequencer"]

T = TypeVar("T")


class Sequencer(Generic[T]):
    """Holds back what came too early. `repeated` counts what came again, or after it was given up."""

    def __init__(self, first: int = 1) -> None:
        self.next = first
        self.repeated = 0
        self._held: dict[int, T] = {}

    @property
    def held(self) -> int:
        """How many wait for a lower number."""
        return len(self._held)

    def push(self, numbered: Iterable[tuple[int, T]]) -> list[T]:
        """Take things in and return what is in order now."""
        released: list[T] = []
        held, due = self._held, self.next
        for number, thing in numbered:
            if number == due:
                released.append(thing)
                due += 1
                while held and due in held:
                    released.append(held.pop(due))
                    due += 1
            elif number > due and number not in held:
                held[number] = thing
            else:
                self.repeated += 1
        self.next = due
        return released

    def give_up_gap(self) -> tuple[list[T], range]:
        """Wait no longer for the numbers below the lowest that is held; returns what is in order then, and them."""
        lowest = min(self._held)
        given_up = range(self.next, lowest)
        self.next = lowest
        return self.push([(lowest, self._held.pop(lowest))]), given_up

    def release_all(self) -> tuple[list[T], int]:
        """Return all that is held, in order, and how many numbers were given up between them."""
        numbers = sorted(self._held)
        released = [self._held[number] for number in numbers]
        given_up = 0
        if numbers:
            given_up = numbers[-1] + 1 - self.next - len(numbers)
            self.next = numbers[-1] + 1
        self._held.clear()
        return released, given_up
