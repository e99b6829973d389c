"""The commit log under damage: whatever a crash leaves, what was written whole is there."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log import Batch, CommitLog, MemoryLog, TopicLog
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


@pytest.fixture(params=["disk", "memory"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> TopicLog:
    return MemoryLog() if request.param == "memory" else CommitLog(tmp_path / "t", segment_bytes=500)


def test_what_is_appended_can_be_read_from_any_offset(log: TopicLog) -> None:
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


def test_lanes_come_from_the_index(log: TopicLog) -> None:
    for first in range(0, 30, 10):
        log.append(batch(first, 10))
    assert {p: list(o) for p, o in log.lanes(4).items()} == {
        p: [n for n in range(4, 30) if n % 3 == p] for p in range(3)
    }
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
    assert {p: list(o) for p, o in log.lanes(0).items()} == {p: [n for n in range(20) if n % 3 == p] for p in range(3)}


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 10_000), bit=st.integers(0, 7), is_reopened=st.booleans())
def test_a_flipped_bit_takes_one_event_and_is_named(
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
    # A line end that is gone joins two lines when the segment is scanned; by the index it is one line's damage.
    if is_reopened and b"\n" not in (data[place : place + 1], bytes([data[place] ^ 1 << bit])):
        log.close()
        log = CommitLog(folder)
    lines, after, damaged = log.read(0, 8, 1 << 20)
    hit = bytes(data[:place]).count(b"\n")
    assert after == 8
    assert [damage.offset for damage in damaged] == [hit]
    assert lines == [line for n, line in enumerate(batch(0, 8).lines) if n != hit]
    assert log.pick(range(8)).keys() == set(range(8)) - {hit}
    log.close()


def test_a_failed_write_is_taken_back_and_writing_goes_on_in_a_new_segment(
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
