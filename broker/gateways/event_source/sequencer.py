"""The sequencer: takes numbered items in any order and releases them in order.

Always true: the released items have the numbers from the first one to `next` - 1, each once, except the numbers that were
given up. The held items have numbers above `next`.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

__all__ = ["Sequencer"]

T = TypeVar("T")


class Sequencer(Generic[T]):
    """Holds items that arrive too early.

    `repeated` counts items that arrived twice, or after the sequencer had given them up.
    """

    def __init__(self, first: int = 1) -> None:
        self.next = first
        self.repeated = 0
        self._held: dict[int, T] = {}

    @property
    def held(self) -> int:
        """How many items wait for a lower number."""
        return len(self._held)

    def push(self, numbered: Iterable[tuple[int, T]]) -> list[T]:
        """Take numbered items and return those that can be released, in order."""
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
        """Give up the missing numbers below the lowest held one. Returns the released items and the given-up numbers."""
        lowest = min(self._held)
        given_up = range(self.next, lowest)
        self.next = lowest
        return self.push([(lowest, self._held.pop(lowest))]), given_up

    def release_all(self) -> tuple[list[T], int]:
        """Release all held items in order. Returns them, and how many numbers were given up."""
        numbers = sorted(self._held)
        released = [self._held[number] for number in numbers]
        given_up = 0
        if numbers:
            given_up = numbers[-1] + 1 - self.next - len(numbers)
            self.next = numbers[-1] + 1
        self._held.clear()
        return released, given_up
