"""A short version of ``make faults``: no confirmed event is lost by damage to the files."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import structlog

import tests.faults.__main__ as program
from tests.faults.damage import bit_flips, truncations
from tests.faults.failing_calls import KINDS, failing_calls
from tests.faults.kills import kills
from tests.faults.long_log import long_log
from tests.faults.power_cuts import Recording, memory_folder, power_cuts, record
from tests.faults.verdict import Verdict

pytestmark = pytest.mark.anyio

EVENTS = 120


def nothing() -> None:
    """Ignore the progress of a run."""


async def recorded(dice: Random) -> Recording:
    with memory_folder() as folder:
        return await record(folder / "broker", dice, EVENTS)


def assert_clean(total: Verdict) -> None:
    assert total.confirmed > 0
    assert (total.lost, total.doubled, total.notes) == (0, 0, ())


def test_the_counts_so_far_are_written_where_an_error_ends_the_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(*_: object) -> AsyncIterator[Verdict]:
        yield Verdict(3, confirmed=5, lost=1, notes=("flip 3: kept @7 is gone",))
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(program, "bit_flips", broken)
    # Prevent this, since the program's log settings would stay for other tests.
    monkeypatch.setattr(structlog, "configure", lambda **_: None)
    with pytest.raises(RuntimeError, match="the disk is full"):
        program.main(["--cuts", "4", "--log-size", "0B"])
    said = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:5]] for line in said.splitlines() if line.startswith("│")]
    assert [row[0] for row in rows] == ["power cuts", "flipped bits"]
    assert rows[0][1] == "4"
    assert rows[1] == ["flipped bits", "3", "5", "1"]
    assert "flip 3: kept @7 is gone" in said


async def test_after_power_cuts_all_that_was_confirmed_is_there_once() -> None:
    dice, total = Random(1), Verdict()
    async for verdict in power_cuts(await recorded(dice), 25, dice, nothing):
        total += verdict
    assert total.faults == 25
    assert_clean(total)


async def test_a_broker_that_confirms_before_the_disk_has_the_event_would_be_detected() -> None:
    dice, total = Random(2), Verdict()
    recording = await recorded(dice)
    # Repeat the run on a disk that ignores each sync of a log.
    calls = [replace(c, kind="none") if c.kind == "sync" and c.path.endswith(".jsonl") else c for c in recording.calls]
    async for verdict in power_cuts(Recording(calls, recording.ledger), 10, dice, nothing):
        total += verdict
    assert total.lost > 0


async def test_a_flipped_bit_affects_only_its_own_event_and_is_reported() -> None:
    dice, total = Random(3), Verdict()
    async for verdict in bit_flips(await recorded(dice), 30, dice, nothing):
        total += verdict
    assert_clean(total)


async def test_files_cut_to_any_length_never_stop_a_start() -> None:
    dice, total = Random(4), Verdict()
    # Cut the files after the first snapshot with the subscription. Before that, only the journal has it, and a loss there is
    # noticed.
    async for verdict in truncations(await recorded(dice), 2, dice, nothing, (0.85,)):
        total += verdict
    assert_clean(total)


async def test_events_of_failed_calls_are_refused_and_all_of_them_are_stored_in_the_end() -> None:
    total = Verdict()
    async for verdict in failing_calls(len(KINDS), Random(5), nothing, 60):
        total += verdict
    assert_clean(total)


def test_after_kills_under_load_all_that_was_confirmed_is_there_once(tmp_path: Path) -> None:
    total = sum(kills(2, Random(6), tmp_path, nothing), Verdict())
    assert total.faults == 2
    assert_clean(total)


def test_a_long_log_is_whole_after_a_kill(tmp_path: Path) -> None:
    assert_clean(long_log(40 << 20, tmp_path, Random(7), nothing, "--segment-bytes", "2MiB", "--recent-bytes", "1MiB"))
