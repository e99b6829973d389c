"""``fsck`` on intact and damaged folders of real brokers."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import BrokerProcess
from tweetwire import Event, SyncClient
from tweetwire.cli import main

EVENTS = 300


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files of a killed broker. It had a topic of several segments, and a producer with a checkpoint."""
    folder = tmp_path_factory.mktemp("fsck")
    with BrokerProcess(folder / "broker", "--segment-bytes", "8KiB", "--reserve-bytes", "64KiB") as broker:
        with SyncClient(broker.address) as client:
            for first in range(0, EVENTS, 50):
                client.publish_many("t", (Event(id=str(n), msg=n, priority=n % 3) for n in range(first, first + 50)))
            client.command("checkpoint t p here")
        broker.kill()
    root = folder / "broker"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def folder(kept: dict[str, bytes], tmp_path: Path) -> Path:
    for name, content in kept.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.fixture(autouse=True)
def _tidy() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


class Fsck:
    """Runs the command in this process."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capture = capture

    def __call__(self, *words: str) -> tuple[int, str]:
        self._capture.readouterr()
        status = main(["fsck", str(self._folder), *words])
        return status, self._capture.readouterr().out

    def wrong(self, *words: str) -> dict[str, dict[str, Any]]:
        _, out = self("--json", *words)
        return {one["file"]: one for one in json.loads(out) if one["lost"] or one["mendable"]}


@pytest.fixture
def fsck(folder: Path, capsys: pytest.CaptureFixture[str]) -> Fsck:
    return Fsck(folder, capsys)


def segments(folder: Path, suffix: str = "jsonl") -> list[Path]:
    return sorted((folder / "topics" / "t").glob(f"*.{suffix}"))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_folder_of_a_killed_broker_has_no_faults_and_is_not_changed(folder: Path, fsck: Fsck) -> None:
    before = files(folder)
    status, out = fsck()
    assert status == 0
    assert re.fullmatch(
        r"no faults found in \d+ files with \d+ events and records \(\d+\.\d KiB\); identity \w{22}\n", out
    )
    assert files(folder) == before
    _, told = fsck("--json")
    assert sum(one["count"] for one in json.loads(told) if one["file"].startswith("topics/t/")) == EVENTS


def test_indexes_and_a_torn_tail_are_mended_without_a_broker(folder: Path, fsck: Fsck) -> None:
    before = b"".join(path.read_bytes() for path in segments(folder))
    first, second, *_ = segments(folder, "index")
    first.unlink()
    second.write_bytes(second.read_bytes()[:-7])
    with segments(folder)[-1].open("ab") as file:
        file.write(b'{"topic":"t","off')
    state = folder / "state" / "journal.00000001"
    journal = next((folder / "state").glob("journal.*")) if not state.exists() else state
    with journal.open("ab") as file:
        file.write(b"0000")
    wrong = fsck.wrong()
    assert len(wrong) == 4
    assert all(not one["lost"] for one in wrong.values())
    assert fsck()[0] == 1
    assert fsck("--repair")[0] == 0
    assert fsck() == (0, fsck()[1])
    assert fsck.wrong() == {}
    assert b"".join(path.read_bytes() for path in segments(folder)) == before


def test_damage_is_named_by_topic_and_offset_and_a_repair_removes_nothing(folder: Path, fsck: Fsck) -> None:
    path = segments(folder)[1]
    raw = bytearray(path.read_bytes())
    raw[raw.index(b'"msg":') + 6] ^= 1
    path.write_bytes(raw)
    offset = int(path.stem)
    (name, one), *more = fsck.wrong().items()
    assert (name, one["lost"], more) == (f"topics/t/{path.name}", [f"damaged: @{offset}"], [])
    status, out = fsck("--repair")
    assert status == 1
    assert [line.split()[0] for line in out.splitlines()[2:-1]] == [f"topics/t/{path.name}"], "the others are whole"
    assert path.read_bytes() == raw
    assert fsck.wrong()[name]["lost"] == [f"damaged: @{offset}"]


def test_a_missing_segment_is_reported_as_missing_events(folder: Path, fsck: Fsck) -> None:
    gone = segments(folder)[1]
    after = int(segments(folder)[2].stem)
    gone.unlink()
    wrong = fsck.wrong()
    assert wrong[f"topics/t/{segments(folder)[0].name}"]["lost"] == [f"missing: @{int(gone.stem)} to @{after - 1}"]
    assert wrong[f"topics/t/{gone.stem}.index"]["mendable"] == ["its segment is missing"]
    assert fsck("--repair")[0] == 1
    assert not gone.with_suffix(".index").exists()


def test_damaged_state_is_counted(folder: Path, fsck: Fsck) -> None:
    path = next(path for path in sorted((folder / "state").iterdir()) if path.stat().st_size)
    path.write_bytes(path.read_bytes().replace(b'"', b"'", 1))
    assert "1 damaged records" in fsck.wrong()[f"state/{path.name}"]["lost"][0]


def test_files_that_no_broker_makes_are_named_and_not_opened(folder: Path, fsck: Fsck, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "topics" / "link").symlink_to(outside)
    os.mkfifo(folder / "topics" / "pipe")
    os.mkfifo(folder / "topics" / "t" / f"{10**6:020d}.jsonl")
    os.mkfifo(folder / "topics" / "t" / f"{10**6:020d}.index")
    (folder / "topics" / "t" / f"{10**7:020d}.jsonl").symlink_to(segments(folder)[0])
    (folder / "topics" / "t" / f"{10**8:020d}.jsonl").mkdir()
    os.mkfifo(folder / "state" / "journal.99999999")
    (folder / "state" / "snapshot.damaged-1").symlink_to("/dev/zero")
    for words in ((), ("--repair",)):
        lost = {name: one["lost"] for name, one in fsck.wrong(*words).items()}
        assert lost == {
            "topics/link": ["it is a symbolic link; move it away"],
            "topics/pipe": ["it is no folder; move it away"],
            f"topics/t/{10**6:020d}.jsonl": ["it is no regular file; move it away"],
            f"topics/t/{10**6:020d}.index": ["it is no regular file; move it away"],
            f"topics/t/{10**7:020d}.jsonl": ["it is a symbolic link; move it away"],
            f"topics/t/{10**8:020d}.jsonl": ["it is no regular file; move it away"],
            "state/journal.99999999": ["it is no regular file; move it away"],
            "state/snapshot.damaged-1": ["it is a symbolic link; move it away"],
        }
    assert fsck("--repair")[0] == 1
    assert list(outside.iterdir()) == []


def test_a_sparse_file_costs_neither_time_nor_memory_and_its_hole_is_cut(folder: Path, fsck: Fsck) -> None:
    before = b"".join(path.read_bytes() for path in segments(folder))
    *_, closed, last = segments(folder)
    for path in (closed, last, last.with_suffix(".index"), folder / "state" / "snapshot"):
        os.truncate(path, 1 << 40)
    wrong = fsck.wrong()
    assert "bytes after the last event" in wrong[f"topics/t/{last.name}"]["mendable"][0]
    assert all(not one["lost"] for name, one in wrong.items() if name.startswith("topics/"))
    fsck("--repair")
    assert b"".join(path.read_bytes() for path in segments(folder)) == before
    assert last.with_suffix(".index").stat().st_size < 1 << 20


def test_fsck_is_refused_while_a_broker_runs_and_in_a_folder_of_no_broker(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "broker", "fsck"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "is not a broker's data directory" in done.stderr
    with BrokerProcess(tmp_path / "broker") as broker:
        done = subprocess.run([*command, str(broker.data_dir)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"a broker uses {broker.data_dir}; stop it, then check again" in done.stderr
