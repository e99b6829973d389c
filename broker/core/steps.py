"""Split the work of a long command into steps, so that it does not block the event loop.

A job is a generator, so that the core needs neither tasks nor threads. It yields

- None where other clients may have their turn,
- `NEXT_TICK` to continue at the broker's next tick,
- a function for a thread, which gets the job's `Interrupt`; its result is sent back into the generator.

It returns the reply, or a function that carries out the command with the result and then replies. It may raise Refusal.
"""

from collections.abc import Callable, Generator, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias, TypeVar

__all__ = ["NEXT_TICK", "SLICE", "Interrupt", "Interrupted", "Outcome", "Step", "Steps", "Tick", "sliced"]

SLICE: Final = 2000

T = TypeVar("T")
R = TypeVar("R")


class Interrupted(Exception):
    """The client that waited for the result has disconnected, or the broker shuts down."""


class Interrupt:
    """A request to the thread of a job to end. The event loop sets it, and the thread checks it."""

    __slots__ = ("_is_asked",)

    def __init__(self) -> None:
        self._is_asked = False

    def ask(self) -> None:
        """Ask the thread to end at its next `check`."""
        self._is_asked = True

    def check(self) -> None:
        """Raise Interrupted if the job must end."""
        if self._is_asked:
            raise Interrupted


class Tick(Enum):
    """A step that waits for the broker's next tick."""

    NEXT = "next"


NEXT_TICK: Final = Tick.NEXT

Outcome: TypeAlias = bytes | Callable[[], None]
Step: TypeAlias = Tick | Callable[[Interrupt], Any] | None
Steps: TypeAlias = Generator[Step, Any, R]


def sliced(items: Sequence[T], function: Callable[[Sequence[T]], R], size: int = SLICE) -> Steps[list[R]]:
    """Return the results of `function` for the slices of `items`, and let other clients have their turn after each slice."""
    found: list[R] = []
    for at in range(0, len(items), size):
        found.append(function(items[at : at + size]))
        yield None
    return found
