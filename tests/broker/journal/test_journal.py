"""The journal and the snapshot: kept records are restored, even from damaged files."""

import os
from pathlib import Path

import pytest

from broker.journal import Journal
from broker.journal.records import CheckpointRecord, Record, SettledRecord, SubscriptionRecord
from tweetwire.protocol.policy import Policy


def record(number: int) -> CheckpointRecord:
    return CheckpointRecord("t", f"p{number}", number, "x" * number)


def restored(folder: Path) -> list[Record]:
    state = Journal(folder)
    try:
        return state.restore().records
    finally:
        state.close()


def test_appended_records_are_restored_after_restarts_and_snapshots(tmp_path: Path) -> None:
    subscription = SubscriptionRecord("t", "s", 3, 9, {2: 5}, Policy(tries=7), [4], [(5, 0)])
    state = Journal(tmp_path)
    state.append([record(1), subscription])
    state.append([SettledRecord("t", "s", {2: [(5, 8)]})])
    state.sync()
    state.close()
    assert restored(tmp_path) == [record(1), subscription, SettledRecord("t", "s", {2: [(5, 8)]})]
    state = Journal(tmp_path)
    state.append([record(2)])
    generation = state.begin_generation()
    state.append([record(3)])
    state.write_snapshot(generation, [record(10)])
    state.append([record(4)])
    state.close()
    assert restored(tmp_path) == [record(10), record(3), record(4)]


def test_a_kill_between_the_new_journal_and_the_snapshot_loses_nothing(tmp_path: Path) -> None:
    state = Journal(tmp_path)
    state.append([record(1)])
    state.begin_generation()
    state.append([record(2)])
    state.close()
    (tmp_path / "snapshot.new").write_bytes(b"half of a snapsh")
    assert restored(tmp_path) == [record(1), record(2)]


@pytest.mark.parametrize("length", range(0, 200, 7))
def test_a_journal_of_any_length_opens_with_its_whole_lines(tmp_path: Path, length: int) -> None:
    state = Journal(tmp_path)
    state.append(map(record, range(5)))
    state.close()
    (journal,) = tmp_path.glob("journal.*")
    data = journal.read_bytes()
    journal.write_bytes(data[:length])
    whole = data[:length].count(b"\n")
    found = restored(tmp_path)
    assert found[:whole] == [record(number) for number in range(whole)]
    assert len(found) <= whole + 1


def test_a_flipped_bit_destroys_one_line_and_is_counted(tmp_path: Path) -> None:
    state = Journal(tmp_path)
    state.append(map(record, range(5)))
    state.close()
    (journal,) = tmp_path.glob("journal.*")
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"p2", b"p9")
    journal.write_bytes(b"".join(lines))
    state = Journal(tmp_path)
    found = state.restore()
    state.close()
    assert found.damaged_lines == 1
    assert found.records == [record(number) for number in (0, 1, 3, 4)]


def test_a_damaged_snapshot_is_set_aside_and_its_good_lines_are_used(tmp_path: Path) -> None:
    state = Journal(tmp_path)
    state.write_snapshot(state.begin_generation(), map(record, range(4)))
    state.close()
    path = tmp_path / "snapshot"
    path.write_bytes(path.read_bytes().replace(b"p1", b"p7"))
    state = Journal(tmp_path)
    found = state.restore()
    state.close()
    assert found.records == [record(number) for number in (0, 2, 3)]
    assert [name.startswith("snapshot.damaged-") for name in found.set_aside] == [True]
    assert (tmp_path / found.set_aside[0]).exists()


def test_records_that_a_full_disk_refused_are_appended_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = Journal(tmp_path)
    write = os.write

    def half(handle: int, data: bytes) -> int:
        if len(data) < 40:
            raise OSError(28, "No space left on device")
        return write(handle, bytes(data[: len(data) // 2]))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        for number in range(5):
            with pytest.raises(OSError, match="No space"):
                state.append([record(number)])
    state.append([record(5)])
    state.close()
    assert restored(tmp_path) == [record(number) for number in range(6)]


@pytest.mark.parametrize("taken", [0, 1, 30])
def test_records_that_a_full_disk_refused_can_be_dropped_without_harm_to_later_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    state = Journal(tmp_path)
    state.append([record(0)])
    write, left = os.write, [taken]

    def some(handle: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(28, "No space left on device")
        size, left[0] = left[0], 0
        return write(handle, bytes(data[:size]))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", some)
        for number in range(1, 50):
            with pytest.raises(OSError, match="No space"):
                state.append([record(number)])
    waiting = state.untaken_bytes
    state.drop_untaken()
    assert (state.untaken_bytes < 200, waiting > 2000) == (True, True)
    state.append([record(99)])
    state.close()
    assert restored(tmp_path) == [record(0), *([record(1)] if taken else []), record(99)]


@pytest.mark.parametrize("length", [None, *range(0, 400, 23)])
def test_a_damaged_cut_or_missing_snapshot_loses_nothing_since_the_previous_one_is_kept(
    tmp_path: Path, length: int | None
) -> None:
    state = Journal(tmp_path)
    state.append(map(record, range(3)))
    state.write_snapshot(state.begin_generation(), map(record, range(3)))
    state.append([record(3)])
    state.write_snapshot(state.begin_generation(), map(record, range(4)))
    state.append([record(4)])
    state.close()
    path = tmp_path / "snapshot"
    raw = path.read_bytes()
    if length is None:
        path.unlink()
    else:
        path.write_bytes(raw[:length])
    state = Journal(tmp_path)
    found = state.restore()
    assert found.records == list(map(record, range(5)))
    assert bool(found.set_aside) == (length is not None and length < len(raw))
    state.write_snapshot(state.begin_generation(), found.records)
    state.close()
    assert restored(tmp_path) == list(map(record, range(5)))


def test_old_journals_are_removed_when_two_snapshots_are_newer(tmp_path: Path) -> None:
    state = Journal(tmp_path)
    for number in range(6):
        state.append([record(number)])
        state.write_snapshot(state.begin_generation(), map(record, range(number + 1)))
    state.close()
    assert len(list(tmp_path.glob("journal.*"))) <= 3
    assert restored(tmp_path) == list(map(record, range(6)))
