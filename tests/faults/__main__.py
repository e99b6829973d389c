"""``python -m tests.faults``: damage the broker's files like power cuts, bad disks and kills, and report lost events."""

import logging
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

import anyio
import structlog
from pydantic import Field
from pydantic_settings import BaseSettings
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.faults.damage import bit_flips, truncations
from tests.faults.failing_calls import failing_calls
from tests.faults.kills import kills
from tests.faults.long_log import STEP_BYTES, long_log
from tests.faults.power_cuts import memory_folder, power_cuts, record
from tests.faults.verdict import Verdict
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.flags import read_flags
from tweetwire.runtime.kinds import Bytes
from tweetwire.runtime.program import settings_config

EVENTS: Final = 400
EVENTS_OF_FAILING: Final = 150
RECORDINGS: Final = 4


class FaultSettings(BaseSettings):
    """Cause faults, and compare the broker's events with those confirmed before. Status 1 if an event was lost or doubled."""

    model_config = settings_config("python -m tests.faults")

    cuts: int = Field(1000, ge=0, description="power cuts replayed from recorded runs")
    flips: int = Field(500, ge=0, description="bits flipped, one at a time")
    lengths: int = Field(4, ge=0, description="lengths that each file of three folders is cut to")
    failing: int = Field(60, ge=0, description="runs in which calls fail (ENOSPC, EROFS, EIO, a sync)")
    cycles: int = Field(200, ge=0, description="SIGKILLs of a real broker under load")
    log_size: Bytes = Field(
        "10GiB", ge=0, validate_default=True, description="size of a long log whose broker is killed; needs the room"
    )
    seed: int = Field(1, description="seed of all that is random; kills are as random as the machine")


async def _run(settings: FaultSettings, found: dict[str, Verdict]) -> None:
    """Run all faults. `found` gets the counts, also if an error ends the run."""
    dice = Random(settings.seed)
    with Progress(
        TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), transient=True
    ) as progress:

        async def collect(
            name: str, total: int | None, verdicts: Callable[[Callable[[], None]], AsyncIterator[Verdict]]
        ) -> None:
            task = progress.add_task(name, total=total)
            found.setdefault(name, Verdict())
            async for verdict in verdicts(lambda: progress.advance(task)):
                found[name] += verdict
            progress.remove_task(task)

        for number in range(RECORDINGS if settings.cuts else 0):
            with memory_folder() as folder:
                recording = await record(folder / "broker", dice, EVENTS)
            share = (settings.cuts + number) // RECORDINGS
            await collect("power cuts", share, lambda tell: power_cuts(recording, share, dice, tell))  # noqa: B023
        with memory_folder() as folder:
            recording = await record(folder / "broker", dice, EVENTS)
        await collect("flipped bits", settings.flips, lambda tell: bit_flips(recording, settings.flips, dice, tell))
        await collect("files cut short", None, lambda tell: truncations(recording, settings.lengths, dice, tell))
        await collect(
            "failing calls",
            settings.failing,
            lambda tell: failing_calls(settings.failing, dice, tell, EVENTS_OF_FAILING),
        )
        await collect("SIGKILLs", settings.cycles, lambda tell: _kills(settings.cycles, dice, tell))
        if settings.log_size:
            await collect(
                "a long log", settings.log_size // STEP_BYTES, lambda tell: _long_log(settings.log_size, dice, tell)
            )


async def _kills(cycles: int, dice: Random, tell: Callable[[], None]) -> AsyncIterator[Verdict]:
    with memory_folder() as folder:
        for verdict in kills(cycles, dice, folder, tell) if cycles else ():
            yield verdict


async def _long_log(size: int, dice: Random, tell: Callable[[], None]) -> AsyncIterator[Verdict]:
    with TemporaryDirectory(prefix="tweetwire-faults-", dir=".") as folder:
        yield long_log(size, Path(folder), dice, tell)


def _show(found: dict[str, Verdict]) -> None:
    table = Table(title="faults")
    for heading in ("fault", "tried", "confirmed events compared", "lost", "doubled", "longest start"):
        table.add_column(heading, justify="left" if heading == "fault" else "right")
    for name, one in found.items():
        figures = [f"{value:,}" for value in (one.faults, one.confirmed, one.lost, one.doubled)]
        table.add_row(name, *figures, f"{one.longest_start_s:.2f} s")
    console = Console(width=100)
    console.print(table)
    for one in found.values():
        for note in one.notes[:20]:
            console.print(note, highlight=False, markup=False)


def main(words: Sequence[str]) -> int:
    """Run all faults. Returns 2 for a wrong setting. If an error ends the run, the counts so far are printed."""
    try:
        settings = read_flags(FaultSettings, words)
    except StartError as error:
        print(error, file=sys.stderr)
        return 2
    # The broker's warnings about repaired files are useless here, since the test damaged them on purpose.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    found: dict[str, Verdict] = {}
    try:
        anyio.run(_run, settings, found, backend_options={"use_uvloop": True})
    finally:
        _show(found)
    return int(any(one.lost or one.doubled for one in found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
