"""Measure row after row, then the growth of the cost. A row that fails or hangs does not stop the others."""

import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.programs import NotMeasured
from bench.rounds import Rounds
from bench.row import BenchRow, Growth
from bench.rows import GROWTHS, ROWS
from bench.settings import BenchSettings

__all__ = ["Runner"]

# This is longer than any round takes, also on a slow machine.
_HUNG_S = 300.0


class _Hung(KeyboardInterrupt):
    """A measurement does not end.

    This is a KeyboardInterrupt, since uvloop passes on no other exception from a signal handler.
    """

    def __str__(self) -> str:
        return f"did not end within {_HUNG_S:g} s"


class Runner:
    """Collects rows and growths. After a KeyboardInterrupt it holds those that were complete."""

    def __init__(self, settings: BenchSettings, tell: Callable[[str], None]) -> None:
        self.settings = settings
        self.rows: list[BenchRow] = []
        self.growths: list[Growth] = []
        self._names = [name for name in ROWS if name in settings.only or not settings.only]
        self._rounds = Rounds(settings.rounds, settings.row_time, self._tell_round)
        self._tell = tell
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """The duration of the run so far, in seconds."""
        return time.monotonic() - self._began

    @property
    def is_failed(self) -> bool:
        """Whether a measurement failed."""
        return any(row.is_failed for row in self.rows) or any(growth.is_failed for growth in self.growths)

    def run(self) -> None:
        """Measure all rows of the settings."""
        scales = [scale for scale in self.settings.scales if scale > 0]
        growing = [name for name in self._names if name in GROWTHS and scales]
        for number, name in enumerate(self._names, 1):
            self._tell(f"row {number} of {len(self._names)}: {name}, after {self.seconds:.0f} s")
            self._measure(name)
        for number, name in enumerate(growing, 1):
            self._tell(f"scale run {number} of {len(growing)}: {name}, after {self.seconds:.0f} s")
            self._grow(name, scales)

    def _measure(self, name: str) -> None:
        try:
            self._check_budget()
            with _watched():
                self.rows += list(ROWS[name](self.settings, self._rounds))
        except NotMeasured as error:
            self.rows.append(BenchRow(name=name, what="", reason=str(error)))
        except (Exception, _Hung) as error:  # noqa: BLE001 — after any error, continue with the other rows
            self.rows.append(BenchRow(name=name, what="", reason=self._told(name, error), is_failed=True))

    def _grow(self, name: str, scales: list[float]) -> None:
        what, rate, share = GROWTHS[name]
        growth = Growth(name=name, what=what)
        try:
            for scale in scales:
                self._check_budget()
                events = max(1, round(self.settings.scale_events * share * scale))
                with _watched():
                    cost_us = 1e6 / rate(self.settings.model_copy(update={"events": events}))
                growth.scales.append(scale)
                growth.costs_us.append(cost_us)
                self._tell(f"{name} at {scale:g} times the work: {cost_us:.2f} µs an event")
        except NotMeasured as error:
            growth.reason = str(error)
        except (Exception, _Hung) as error:  # noqa: BLE001 — after any error, continue with the other rows
            growth.reason, growth.is_failed = self._told(name, error), True
        self.growths.append(growth)

    def _check_budget(self) -> None:
        if self.seconds > self.settings.budget:
            raise NotMeasured(f"the time of the run was up (--budget {self.settings.budget:g}s)")

    def _tell_round(self, text: str) -> None:
        self._tell(text)
        _give_time()

    def _told(self, name: str, error: Exception | _Hung) -> str:
        self._tell(f"{name} failed:\n{''.join(traceback.format_exception(error))}")
        return f"{type(error).__name__.strip('_')}: {str(error).partition(chr(10))[0]}"


@contextmanager
def _watched() -> Iterator[None]:
    """Raise _Hung in the block if a round takes longer than `_HUNG_S`."""

    def interrupt(*_: object) -> None:
        raise _Hung

    before = signal.signal(signal.SIGALRM, interrupt)
    _give_time()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _give_time() -> None:
    signal.setitimer(signal.ITIMER_REAL, _HUNG_S)
