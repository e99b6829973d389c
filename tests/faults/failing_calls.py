"""Make calls fail (a full disk, a read-only disk, an I/O error, a failed sync), and then cut the power."""

import errno
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Final

from tests.faults.disk import CUTS, Disk
from tests.faults.power_cuts import Recording, memory_folder
from tests.faults.shim import WRITING, Call, Shim, ShortWrite
from tests.faults.verdict import Verdict, judge
from tests.faults.workload import Ledger, load, serving_broker, small_files

__all__ = ["failing_calls"]

KINDS: Final = (
    (WRITING, errno.ENOSPC),
    (WRITING, errno.EROFS),
    (WRITING, errno.EIO),
    (("sync", "syncdir"), errno.EIO),
    (("sync",), errno.ENOSPC),
)
CUTS_EACH: Final = 3
FIRST_MAX: Final = 150
CALLS_MAX: Final = 40


class Failing:
    """Makes `count` calls of some kinds fail, beginning with call number `first` after `arm`."""

    def __init__(self, kinds: tuple[str, ...], number: int, first: int, count: int, *, is_short: bool) -> None:
        self.is_armed = False
        self._kinds = kinds
        self._number = number
        self._left = [first, count]
        self._is_short = is_short

    def arm(self) -> None:
        """Begin to count."""
        self.is_armed = True

    def __call__(self, call: Call) -> None:
        """Raise OSError if this call must fail. Of a short write, the first half is written."""
        if not self.is_armed or call.kind not in self._kinds:
            return
        if self._left[0]:
            self._left[0] -= 1
            if not self._left[0] and self._is_short and call.kind == "write":
                raise ShortWrite
        elif self._left[1]:
            self._left[1] -= 1
            raise OSError(self._number, os.strerror(self._number))


async def failing_calls(count: int, dice: Random, tell: Callable[[], None], events: int) -> AsyncIterator[Verdict]:
    """Make calls fail in `count` runs. Refused events are sent again, and in the end each event must be stored once."""
    for number in range(count):
        kinds, error = KINDS[number % len(KINDS)]
        first, calls = dice.randrange(FIRST_MAX), dice.choice((1, 2, CALLS_MAX))
        failing = Failing(kinds, error, first, calls, is_short=error == errno.ENOSPC)
        name = f"{errno.errorcode[error]} at {'/'.join(kinds)} {first} for {calls}"
        with memory_folder() as folder:
            recording = await _run(folder / "broker", failing, dice, events)
            end = len(recording.calls)
            verdict = await judge(folder / "broker", recording.ledger, end, name=name)
        for place in sorted(dice.randint(recording.ledger.subscribed_at, end) for _ in range(CUTS_EACH)):
            disk = Disk()
            disk.take(recording.calls[:place])
            how = dice.choice(CUTS)
            with memory_folder() as folder:
                disk.write(disk.cut(how, dice), folder)
                verdict += await judge(folder, recording.ledger, place, name=f"{name}, {how} after call {place}")
        verdict.faults = 1
        yield verdict
        tell()


async def _run(folder: Path, failing: Failing, dice: Random, events: int) -> Recording:
    ledger = Ledger()
    async with small_files():
        with Shim(folder, failing) as shim:
            async with serving_broker(folder) as port:
                await load(port, ledger, lambda: len(shim.calls), dice, events, on_subscribed=failing.arm)
                failing.is_armed = False
    return Recording(shim.calls, ledger)
