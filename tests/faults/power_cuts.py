"""Power cuts: replay a recorded run to random points, with unsynced data dropped, torn, reordered or NUL-filled."""

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

from tests.faults.disk import CUTS, Disk
from tests.faults.shim import Call, Shim
from tests.faults.verdict import Verdict, judge
from tests.faults.workload import Ledger, load, serving_broker, small_files

__all__ = ["Recording", "memory_folder", "power_cuts", "record"]

TWICE: Final = 0.2
"""The share of the cuts after which there is a second cut, during the next start."""


class Recording:
    """A run: every call, and the ledger of confirmed events."""

    def __init__(self, calls: list[Call], ledger: Ledger) -> None:
        self.calls = calls
        self.ledger = ledger


async def record(folder: Path, dice: Random, events: int) -> Recording:
    """Run a broker on `folder` under load, and record it until its orderly end."""
    ledger = Ledger()
    async with small_files():
        with Shim(folder) as shim:
            async with serving_broker(folder) as port:
                await load(port, ledger, lambda: len(shim.calls), dice, events)
    return Recording(shim.calls, ledger)


async def power_cuts(
    recording: Recording, count: int, dice: Random, tell: Callable[[], None]
) -> AsyncIterator[Verdict]:
    """Cut the power `count` times, and judge the recovered files each time."""
    disk = Disk()
    for place in sorted(dice.randint(0, len(recording.calls)) for _ in range(count)):
        disk.take(recording.calls[disk.taken : place])
        how = dice.choice(CUTS)
        with memory_folder() as folder:
            files = disk.cut(how, dice)
            disk.write(files, folder)
            name = f"{how} after call {place}"
            if dice.random() < TWICE:
                name += " and again during the start"
                await _cut_again(folder, files, recording.ledger, place, dice)
            yield await judge(folder, recording.ledger, place, name=name)
        tell()


async def _cut_again(folder: Path, files: dict[str, bytes], ledger: Ledger, place: int, dice: Random) -> None:
    """Start a broker, and return the files that a power cut during the start leaves."""
    with Shim(folder) as shim:
        await judge(folder, ledger, place, name="first start")
    disk = Disk({name: files[name] for name in files})
    disk.take(shim.calls[: dice.randint(0, len(shim.calls))])
    again = disk.cut(dice.choice(CUTS), dice)
    _remove_files(folder)
    disk.write(again, folder)


def _remove_files(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            path.unlink()


@contextmanager
def memory_folder() -> Iterator[Path]:
    """Yield a folder that is deleted after the block, in memory if the system supports it."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="tweetwire-faults-", dir=place) as folder:
        yield Path(folder)
