"""Events that a log hides: no method returns them, wherever the log's parts begin. Also logs that were set aside."""

import threading
from pathlib import Path

import pytest

from broker.log import CommitLog, MemoryLog, OpenFiles, TopicLog
from broker.log.names import segment_path
from tests.broker.log.test_log import batch, placed, read_all


@pytest.fixture(params=["disk", "memory"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> TopicLog:
    found = MemoryLog(span_bytes=500) if request.param == "memory" else CommitLog(tmp_path / "t", segment_bytes=500)
    for first in range(0, 40, 4):
        found.append(batch(first, 4))
    return found


@pytest.mark.parametrize("below", [0, 1, 7, 8, 23, 39, 40, 99])
def test_no_method_returns_an_event_below_the_hidden_offset(log: TopicLog, below: int) -> None:
    log.hide_below(below)
    first = min(below, 40)
    assert (log.earliest, log.next) == (first, 40)
    assert read_all(log) == batch(first, 40 - first).lines
    assert log.read(0, 1, 1 << 20)[:2] == (batch(first, min(1, 40 - first)).lines, min(first + 1, 40))
    assert set(log.pick(range(40))) == set(range(first, 40))
    assert placed(log) == {n: n % 3 for n in range(first, 40)}
    assert [log.priority_of(n) for n in range(40)] == [n % 3 if n >= first else 0 for n in range(40)]
    assert log.offset_at(5) == max(5, first)
    log.hide_below(3)
    assert log.earliest == max(3, first)


def test_a_log_continues_after_all_of_its_events_were_hidden_and_removed(log: TopicLog) -> None:
    log.hide_below(40)
    log.end_hidden()
    log.forget_below(40)
    assert (log.size, log.earliest, log.next) == (0, 40, 40)
    log.end_hidden()
    assert log.spans() == []
    log.append(batch(40, 2))
    assert read_all(log) == batch(40, 2).lines


def test_the_last_part_stays_open_while_it_has_an_event_that_is_not_hidden(log: TopicLog) -> None:
    spans = log.spans()
    log.hide_below(39)
    log.end_hidden()
    assert log.spans() == spans


def test_a_log_that_was_set_aside_is_read_at_its_new_place_and_harms_no_new_log(tmp_path: Path) -> None:
    files = OpenFiles()
    old = CommitLog(tmp_path / "t", segment_bytes=500, files=files)
    for first in range(0, 40, 4):
        old.append(batch(first, 4))
    old.hide_below(20)
    old.set_aside(tmp_path / "aside")
    assert not (tmp_path / "t").exists()
    new = CommitLog(tmp_path / "t", segment_bytes=500, files=files)
    new.append(batch(0, 3, size=5))
    assert read_all(old) == batch(20, 20).lines
    old.forget_below(40)
    old.end_older(1 << 60)
    old.end_hidden()
    assert read_all(new) == batch(0, 3, size=5).lines
    new.append(batch(3, 30))
    new.close()
    assert read_all(CommitLog(tmp_path / "t")) == [*batch(0, 3, size=5).lines, *batch(3, 30).lines]


def test_a_reader_of_a_log_that_was_set_aside_and_deleted_finds_nothing(tmp_path: Path) -> None:
    log = CommitLog(tmp_path / "t", segment_bytes=500)
    log.append(batch(0, 4))
    log.set_aside(tmp_path / "aside")
    log.close()
    for path in (tmp_path / "aside").iterdir():
        path.unlink()
    assert log.read(0, 9, 1 << 20)[0] == []
    assert log.pick([1]) == {}
    assert (log.stretches(0), log.priority_of(1)) == ([], 0)


def test_a_rename_that_fails_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = CommitLog(tmp_path / "t")
    log.append(batch(0, 4))
    with pytest.raises(OSError, match="No such file"):
        log.set_aside(tmp_path / "missing" / "aside")

    def refuse(_: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("broker.log.commit_log.sync_directory", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        log.set_aside(tmp_path / "aside")
    monkeypatch.undo()
    log.append(batch(4, 4))
    assert read_all(log) == batch(0, 8).lines
    assert not (tmp_path / "aside").exists()


def test_a_file_that_was_opened_before_its_path_was_dropped_is_not_kept_for_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = OpenFiles()
    paths = str(segment_path(tmp_path, 0)), str(tmp_path / "index")
    files.take(*paths, is_made=True).__exit__()
    files.drop(paths[0])
    opened, may_go_on = threading.Event(), threading.Event()
    open_both = OpenFiles._open_both

    def open_slowly(self: OpenFiles, *args: object) -> object:
        found = open_both(self, *args)  # type: ignore[arg-type]
        opened.set()
        assert may_go_on.wait(20)
        return found

    monkeypatch.setattr(OpenFiles, "_open_both", open_slowly)
    reader = threading.Thread(target=lambda: files.take(*paths).__exit__())
    reader.start()
    assert opened.wait(20)
    # The folder is renamed meanwhile.
    files.drop(paths[0])
    may_go_on.set()
    reader.join(20)
    assert len(files) == 0
