"""Show the progress of long work, and at its end how much was done."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

__all__ = ["INTERRUPTED", "Progress"]

INTERRUPTED: Final = 143
"""The exit status after SIGTERM, as in a shell."""


class Progress:
    """Shows long work on stderr: a bar while it runs, if stderr is a terminal, and one line at its end.

    Use it around the work, and report after each part how much was done::

        with Progress("exporting", "exported", "events", total=count) as progress:
            for page in pages:
                write(page)
                progress.advance(len(page))
            progress.note = f"to {path}"

    At the end of the block this writes ``exported 25,000 events to view.json in 2.1 s (11,905/s)``. If the block raises, it
    only removes the bar. SIGTERM in the block ends the process with the status `INTERRUPTED`. `advance` may be called for
    every single event: the bar is drawn ten times a second.

    Args:
        doing: The work while it runs, beside the bar.
        done: The work after its end, the first word of the line. "" for no line, if the result itself is enough.
        unit: The plural of the counted things.
        total: How many there will be, if that is known.
        has_bar: Whether to show a bar; not if the user reads or types other text on the same terminal meanwhile.
    """

    def __init__(self, doing: str, done: str, unit: str, *, total: int | None = None, has_bar: bool = True) -> None:
        self.count = 0
        """How many things were done so far."""
        self.note = ""
        """More text for the line at the end, such as the file with the result."""
        self._doing = doing
        self._done = done
        self._unit = unit
        self._total = total
        self._has_bar = has_bar
        self._began = 0.0
        self._bars: Bars | None = None

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if self._has_bar and sys.stderr.isatty():
            self._bars = _bars()
            self._bars.start()
            self._bars.add_task(self._doing, total=self._total, unit=self._unit)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()
        if error is None and self._done:
            print(self._last_line(), file=sys.stderr, flush=True)
        elif isinstance(error, SystemExit) and not error.code:
            # SIGTERM ends a command with status 0, and a script must not take half of the work for all of it.
            raise SystemExit(INTERRUPTED) from None

    def advance(self, count: int = 1) -> None:
        """Note that `count` more things are done."""
        self.count += count
        if self._bars is not None:
            self._bars.advance(self._bars.task_ids[0], count)

    def _last_line(self) -> str:
        seconds = time.monotonic() - self._began
        unit = self._unit.removesuffix("s") if self.count == 1 else self._unit
        words = [self._done, f"{self.count:,} {unit}", self.note, f"in {seconds:.1f} s"]
        # A rate that was measured over a short time is not meaningful.
        words += [f"({self.count / seconds:,.0f}/s)"] if seconds > 1 and self.count > 1 else []
        return " ".join(filter(None, words))


def _bars() -> "Bars":
    from rich.console import Console  # noqa: PLC0415 — see the module `display`
    from rich.progress import BarColumn, MofNCompleteColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import Progress as Bars  # noqa: PLC0415

    columns = (
        *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[unit]}")),
        TaskProgressColumn(show_speed=True),
        TimeRemainingColumn(),
    )
    return Bars(*columns, console=Console(stderr=True), transient=True)
