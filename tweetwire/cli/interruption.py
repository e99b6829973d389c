"""End a command that waits for events at SIGINT or SIGTERM."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interruption", "handling_signals", "noting_signals"]


class Interruption:
    """Says whether the command must end."""

    def __init__(self) -> None:
        self.is_asked = False


@contextmanager
def noting_signals() -> Iterator[Interruption]:
    """Note the first SIGINT or SIGTERM in the block, and raise KeyboardInterrupt at the second one.

    An exception at the first signal could interrupt an ack between its two lines.
    """
    interruption = Interruption()

    def note(_number: int, _frame: FrameType | None) -> None:
        if interruption.is_asked:
            raise KeyboardInterrupt
        interruption.is_asked = True

    with handling_signals(note):
        yield interruption


@contextmanager
def handling_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call `handler` on SIGINT and SIGTERM in the block."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
