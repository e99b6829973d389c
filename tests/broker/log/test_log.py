"""The commit log under damage: after any crash, every completely written event can be read."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log import Batch, CommitLog, Damage, MemoryLog, TopicLog
from broker.log.index import ENTRY_BYTES


def batch(first: int, count: int, *, size: int = 20) -> Batch:
    lines = [
        b'{"topic":"t","offset":%d,"timestamp":%d,"priority":%d,"x":"%b"}\n' % (n, n, n % 3, b"x" * size)
        for n in range(first, first + count)
    ]
    return Batch(first, lines, list(range(first, first + count)), [n % 3 for n in range(first, first + count)])


def read_all(log: TopicLog) -> list[bytes]:
    lines: list[bytes] = []
    at = log.earliest
    while at < log.next:
        some, at, _ = log.read(at, 1000, 1 << 20)
        lines += some
    return lines


def placed(log: TopicLog, first: int = 0) -> dict[int, int]:
    return {n: p for stretch in log.stretches(first) for n, p in enumerate(stretch.priorities, stretch.first)}


@pytest.fixture(params=["disk", "memory"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> TopicLog:
    return MemoryLog(span_bytes=500) if request.param == "memory" else CommitLog(tmp_path / "t", segment_bytes=500)


def test_appended_events_can_be_read_from_any_offset(log: TopicLog) -> None:
    for first in range(0, 60, 6):
        log.append(batch(first, 6))
    assert (log.earliest, log.next, log.last_timestamp) == (0, 60, 59)
    expected = batch(0, 60).lines
    for at in range(61):
        lines: list[bytes] = []
        after = at
        while after < 60:
            some, after, damaged = log.read(after, 60, 1 << 20)
            lines += some
            assert damaged == []
        assert lines == expected[at:]
    assert log.size == sum(map(len, expected))


def test_a_read_is_bounded_by_count_and_bytes_and_gives_at_least_one(log: TopicLog) -> None:
    log.append(batch(0, 10))
    assert log.read(3, 2, 1 << 20)[1] == 5
    assert len(log.read(0, 10, 1)[0]) == 1


def test_single_lines_are_picked_from_anywhere(log: TopicLog) -> None:
    lines = batch(0, 600).lines
    for first in range(0, 600, 20):
        log.append(batch(first, 20))
    for wanted in ([0], [599], [0, 599], list(range(600)), list(range(3, 600, 7)), [5, 6, 7, 300, 301, 599], []):
        assert log.pick(wanted) == {offset: lines[offset] for offset in wanted}


def test_priorities_come_from_the_index(log: TopicLog) -> None:
    for first in range(0, 30, 10):
        log.append(batch(first, 10))
    assert placed(log, 4) == {n: n % 3 for n in range(4, 30)}
    assert [log.priority_of(n) for n in range(6)] == [0, 1, 2, 0, 1, 2]


def test_segments_roll_and_are_named_by_their_first_offset(tmp_path: Path) -> None:
    log = CommitLog(tmp_path, segment_bytes=300)
    for first in range(0, 40, 4):
        log.append(batch(first, 4))
    names = sorted(path.name for path in tmp_path.glob("*.jsonl"))
    assert len(names) > 3
    assert names[1] == f"{int(names[1][:20]):020d}.jsonl"
    log.close()
    assert read_all(CommitLog(tmp_path)) == batch(0, 40).lines


def test_a_log_cut_at_every_byte_of_its_last_records_opens_with_all_whole_lines(tmp_path: Path) -> None:
    log = CommitLog(tmp_path / "a")
    log.append(batch(0, 5))
    log.close()
    whole = batch(0, 5).lines
    data = b"".join(whole)
    file = tmp_path / "a" / f"{0:020d}.jsonl"
    for cut in range(len(data) - len(whole[-1]) - len(whole[-2]), len(data) + 1):
        file.write_bytes(data[:cut])
        log = CommitLog(tmp_path / "a")
        kept = data[:cut].count(b"\n")
        assert read_all(log) == whole[:kept]
        log.append(batch(kept, 3))
        log.close()
        assert read_all(CommitLog(tmp_path / "a")) == batch(0, kept + 3).lines


@pytest.mark.parametrize("tail", [b"\0" * 100, b"{" + b"\0" * 20 + b"\n\0\0\n", b'{"topic":"t","off'])
def test_a_torn_tail_is_cut_and_reported(tmp_path: Path, tail: bytes) -> None:
    log = CommitLog(tmp_path)
    log.append(batch(0, 5))
    log.close()
    with (tmp_path / f"{0:020d}.jsonl").open("ab") as file:
        file.write(tail)
    log = CommitLog(tmp_path)
    assert log.recovery.cut_bytes == len(tail)
    assert read_all(log) == batch(0, 5).lines


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("index", ["gone", "empty", "short", "odd", "garbage"])
def test_an_index_that_is_lost_or_damaged_is_made_again(tmp_path: Path, index: str, is_last: bool) -> None:
    log = CommitLog(tmp_path, segment_bytes=300)
    for first in range(0, 20, 4):
        log.append(batch(first, 4))
    log.close()
    path = sorted(tmp_path.glob("*.index"))[-1 if is_last else 0]
    raw = path.read_bytes()
    if index == "gone":
        path.unlink()
    else:
        path.write_bytes(
            {"empty": b"", "short": raw[:-ENTRY_BYTES], "odd": raw[:-5], "garbage": os.urandom(len(raw))}[index]
        )
    log = CommitLog(tmp_path)
    assert read_all(log) == batch(0, 20).lines
    assert placed(log) == {n: n % 3 for n in range(20)}


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 10_000), bit=st.integers(0, 7), is_reopened=st.booleans())
def test_a_flipped_bit_damages_one_event_and_is_reported(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int, is_reopened: bool
) -> None:
    folder = tmp_path_factory.mktemp("flip")
    log = CommitLog(folder)
    log.append(batch(0, 8))
    file = folder / f"{0:020d}.jsonl"
    data = bytearray(file.read_bytes())
    place %= len(data)
    data[place] ^= 1 << bit
    file.write_bytes(data)
    if is_reopened:
        log.close()
        log = CommitLog(folder)
    lines, after, damaged = log.read(0, 8, 1 << 20)
    hit = bytes(data[:place]).count(b"\n")
    assert after == 8
    assert [damage.offset for damage in damaged] == [hit]
    assert lines == [line for n, line in enumerate(batch(0, 8).lines) if n != hit]
    assert log.pick(range(8)).keys() == set(range(8)) - {hit}
    log.close()


def test_a_failed_write_is_taken_back_and_writing_continues_in_a_new_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CommitLog(tmp_path)
    log.append(batch(0, 3))

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(OSError, match="Input/output"):
            log.append(batch(3, 2))
        assert log.next == 3
    log.append(batch(3, 4, size=5))
    log.close()
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    assert read_all(CommitLog(tmp_path)) == batch(0, 3).lines + batch(3, 4, size=5).lines


def test_old_segments_are_forgotten_as_a_whole_and_offsets_continue(log: TopicLog) -> None:
    for first in range(0, 60, 6):
        log.append(batch(first, 6))
    spans = log.spans()
    assert len(spans) > 2
    log.forget_below(spans[1].next + 1)
    assert log.earliest == spans[1].next
    assert log.spans() == spans[2:]
    assert log.size == sum(map(len, batch(log.earliest, 60 - log.earliest).lines))
    lines, after, damaged = log.read(0, 1, 1 << 20)
    assert (lines, after, damaged) == (batch(log.earliest, 1).lines, log.earliest + 1, [])
    assert log.pick([0, log.earliest, 59]).keys() == {log.earliest, 59}
    assert min(placed(log)) == log.earliest
    log.forget_below(60)
    assert log.earliest == spans[-1].next
    log.append(batch(60, 1))
    assert log.next == 61
    assert read_all(log) == batch(log.earliest, 61 - log.earliest).lines


def test_the_last_segment_is_ended_when_all_of_it_is_old(log: TopicLog) -> None:
    log.append(batch(0, 3))
    log.end_older(2)
    assert log.spans() == []
    log.end_older(3)
    assert [span.next for span in log.spans()] == [3]
    log.forget_below(3)
    assert (log.earliest, log.next) == (3, 3)
    log.append(batch(3, 1))
    assert read_all(log) == batch(3, 1).lines


def test_a_read_continues_after_segments_that_retention_removes_meanwhile(tmp_path: Path) -> None:
    log = CommitLog(tmp_path, segment_bytes=300)
    for first in range(0, 20, 4):
        log.append(batch(first, 4))
    held = log._segments
    log.forget_below(16)
    assert len(list(tmp_path.glob("*.jsonl"))) == 1
    log._segments = held
    assert log.read(0, 100, 1 << 20) == (batch(16, 4).lines, 20, [])
    assert log.pick([1, 17]) == {17: batch(17, 1).lines[0]}
    assert placed(log) == {n: n % 3 for n in range(16, 20)}
    assert log.priority_of(2) == 0
    assert 3 < log.offset_at(3) <= 16


def filled(folder: Path, count: int = 5, *, segment_bytes: int = 1 << 20) -> Path:
    """Write batches of four and return the first segment."""
    log = CommitLog(folder, segment_bytes=segment_bytes)
    for first in range(0, 4 * count, 4):
        log.append(batch(first, 4))
    log.close()
    return folder / f"{0:020d}.jsonl"


def overwrite(file: Path, start: int, data: bytes) -> None:
    raw = bytearray(file.read_bytes())
    raw[start : start + len(data)] = data
    file.write_bytes(raw)


# A batch that never reached the disk leaves a hole in an open segment without an index.
@pytest.mark.parametrize(
    ("segment_bytes", "has_index", "is_hole"),
    [(500, True, True), (500, False, True), (1 << 20, True, True), (1 << 20, False, False)],
)
@pytest.mark.parametrize("wrong", [b"\x00", b"\x00" * 70, b"}{", b"\n\n\n"])
def test_damage_in_the_middle_affects_only_the_events_there(
    tmp_path: Path, wrong: bytes, segment_bytes: int, has_index: bool, is_hole: bool
) -> None:
    file = filled(tmp_path, segment_bytes=segment_bytes)
    whole = batch(0, 20).lines
    start = sum(map(len, whole[:2])) + 30
    overwrite(file, start, wrong if is_hole else wrong.replace(b"\0\0", b"??"))
    if not has_index:
        file.with_suffix(".index").unlink()
    hit = {2, 3} if len(wrong) > 60 else {2}
    log = CommitLog(tmp_path)
    lines: list[bytes] = []
    damaged: list[Damage] = []
    at = 0
    while at < 20:
        some, at, broken = log.read(at, 20, 1 << 20)
        lines += some
        damaged += broken
    assert lines == [line for number, line in enumerate(whole) if number not in hit]
    assert {damage.offset for damage in damaged} == hit
    assert log.pick(range(20)).keys() == set(range(20)) - hit
    assert log.next == 20
    log.append(batch(20, 2))
    log.close()


def test_a_hole_that_the_last_batch_left_ends_the_log_and_the_bytes_after_it_are_kept_aside(tmp_path: Path) -> None:
    file = filled(tmp_path, 3)
    whole = batch(0, 12).lines
    # The batch's first sector never reached the disk, the rest of it did.
    overwrite(file, sum(map(len, whole[:8])), b"\0" * (len(whole[8]) + 10))
    log = CommitLog(tmp_path)
    assert log.next == 8
    assert read_all(log) == whole[:8]
    (aside,) = tmp_path.glob("*.cut-*")
    assert aside.read_bytes().endswith(whole[10] + whole[11])
    log.append(batch(8, 2))
    log.close()
    assert read_all(CommitLog(tmp_path)) == batch(0, 10).lines


@settings(max_examples=25, deadline=None)
@given(place=st.integers(0, 100_000), bit=st.integers(0, 7), is_running=st.booleans())
def test_a_flipped_bit_in_an_index_loses_no_event(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int, is_running: bool
) -> None:
    folder = tmp_path_factory.mktemp("flip")
    log = CommitLog(folder, segment_bytes=500)
    for first in range(0, 20, 4):
        log.append(batch(first, 4))
    indexes = sorted(folder.glob("*.index"))
    index = indexes[place % len(indexes)]
    raw = bytearray(index.read_bytes())
    # A running broker reads only the entries of an index. Its seal is checked at the start.
    length = len(raw) // ENTRY_BYTES * ENTRY_BYTES if is_running else len(raw)
    raw[place % length] ^= 1 << bit
    with index.open("r+b") as file:
        file.write(raw)
    if not is_running:
        log.close()
        log = CommitLog(folder)
        assert placed(log) == {n: n % 3 for n in range(20)}
    assert read_all(log) == batch(0, 20).lines
    assert log.pick(range(20)) == dict(enumerate(batch(0, 20).lines))
    log.close()


def test_a_missing_segment_leaves_a_gap_that_readers_skip(tmp_path: Path) -> None:
    filled(tmp_path, segment_bytes=300)
    names = sorted(tmp_path.glob("*.jsonl"))
    lost = int(names[1].stem), int(names[2].stem)
    names[1].unlink()
    log = CommitLog(tmp_path)
    assert log.recovery.missing == lost[1] - lost[0]
    kept = [number for number in range(20) if not lost[0] <= number < lost[1]]
    lines: list[bytes] = []
    at = 0
    while at < log.next:
        some, at, _ = log.read(at, 3, 1 << 20)
        lines += some
    assert lines == [batch(0, 20).lines[number] for number in kept]
    assert log.pick(range(20)).keys() == set(kept)
    assert log.priority_of(lost[0]) == 0
    assert not (tmp_path / f"{lost[0]:020d}.index").exists()
    log.close()


@pytest.mark.parametrize("suffix", ["jsonl", "index"])
@pytest.mark.parametrize("number", [0, 1, -1])
def test_files_of_any_length_open_and_the_other_segments_are_whole(tmp_path: Path, suffix: str, number: int) -> None:
    filled(tmp_path / "a", segment_bytes=300)
    names = sorted((tmp_path / "a").glob(f"*.{suffix}"))
    raw = names[number].read_bytes()
    segments = [int(path.stem) for path in sorted((tmp_path / "a").glob("*.jsonl"))]
    first = int(names[number].stem)
    behind = min((one for one in segments if one > first), default=20)
    files = {path: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    for length in range(0, len(raw), 17):
        for path, content in files.items():
            path.write_bytes(content)
        names[number].write_bytes(raw[:length])
        log = CommitLog(tmp_path / "a")
        there = set(read_all(log))
        lost = set() if suffix == "index" else set(range(first + raw[:length].count(b"\n"), behind))
        assert there == {line for at, line in enumerate(batch(0, 20).lines) if at not in lost}
        log.append(batch(log.next, 1))
        log.close()


def test_the_index_of_cut_events_is_never_used_for_the_events_that_replace_them(tmp_path: Path) -> None:
    file = filled(tmp_path, 2)
    whole = batch(0, 8).lines
    overwrite(file, sum(map(len, whole[:4])), b"\0" * sum(map(len, whole[4:])))
    log = CommitLog(tmp_path)
    assert log.next == 4
    assert file.with_suffix(".index").stat().st_size == 4 * ENTRY_BYTES
    log.close()


@pytest.mark.parametrize("half", [slice(8, None), slice(16, None)])
def test_a_half_written_index_entry_does_not_make_its_line_damaged(tmp_path: Path, half: slice) -> None:
    file = filled(tmp_path, 3)
    index = file.with_suffix(".index")
    raw = bytearray(index.read_bytes())
    entry = raw[7 * ENTRY_BYTES : 8 * ENTRY_BYTES]
    entry[half] = bytes(len(entry[half]))
    raw[7 * ENTRY_BYTES : 8 * ENTRY_BYTES] = entry
    index.write_bytes(raw)
    log = CommitLog(tmp_path)
    assert read_all(log) == batch(0, 12).lines
    log.close()
