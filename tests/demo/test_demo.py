"""The whole demo as a process, on free ports: real MongoDB, broker, Spark, and the closing check."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark.apps.java import check_java
from tests.support.paths import ROOT
from tests.support.recordings import invented, recorded
from tests.support.waiting import until
from tweetwire.protocol.errors import StartError

pytestmark = [pytest.mark.stack, pytest.mark.timeout(450)]

WITHIN_S = 300.0


def has_java() -> bool:
    try:
        check_java()
    except StartError:
        return False
    return True


needs_java = pytest.mark.skipif(not has_java(), reason="Spark needs Java 17 or 21")


class Demo:
    """A running demo and its output."""

    def __init__(self, process: subprocess.Popen[str], data_dir: Path, log_path: Path) -> None:
        self.process = process
        self.data_dir = data_dir
        self.log_path = log_path

    def wait_for(self, word: str, within_s: float = WITHIN_S) -> None:
        """Wait until the demo has logged `word`."""
        self.until(lambda: word in self.log_path.read_text(), within_s)

    def until(self, condition: Callable[[], bool], within_s: float = WITHIN_S) -> None:
        """Wait until a condition holds; fail at once when the demo ends."""

        def holds() -> bool:
            assert self.process.poll() is None, self.log_path.read_text()
            return condition()

        until(holds, within_s, self.log_path.read_text, pause_s=0.05)

    def children(self) -> dict[int, str]:
        """Return the command lines of the demo's processes by pid."""
        pids = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return {int(pid): Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in pids}

    def child(self, module: str) -> int:
        """Return the pid of the child that runs ``python -m <module>``."""
        return next(pid for pid, line in self.children().items() if f"-m {module} " in f"{line} ")

    def end(self) -> tuple[int, dict[str, Any]]:
        """Wait for the demo's end. Return its exit status, and the rows of its check by name."""
        out, _ = self.process.communicate(timeout=WITHIN_S)
        found = json.loads(out.splitlines()[-1])
        return self.process.returncode, {row["what"]: row for row in found["rows"]}


@contextmanager
def running(data_dir: Path, *flags: str) -> Iterator[Demo]:
    """Run a demo, without a dashboard unless the flags ask for one. When the block ends, kill its remaining processes."""
    log_path = data_dir.with_suffix(".log")
    flags = flags if "--dashboard" in flags else (*flags, "--no-dashboard")
    command = [sys.executable, "-m", "demo", "--report", "json", "--free-ports", "--data-dir", str(data_dir), *flags]
    env = {name: value for name, value in os.environ.items() if name != "MONGO_URL"}
    with log_path.open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, env=env)
    try:
        yield Demo(process, data_dir, log_path)
    finally:
        process.kill()
        process.communicate()


def wrong(rows: dict[str, Any]) -> list[Any]:
    return [row for row in rows.values() if not row["is_right"]]


def until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 30
    while alive := [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, f"still there: {alive}"
        time.sleep(0.05)


@needs_java
def test_everything_arrives_everywhere_once_also_when_a_program_is_killed(tmp_path: Path) -> None:
    data_dir = tmp_path / "demo"
    flags = ("--seconds", "8", "--window", "4s", "--rate", "150", "--dashboard")
    with running(data_dir, *flags) as demo:
        demo.wait_for("demo ready on")
        demo.wait_for("dashboard: http://127.0.0.1:")
        pids = list(demo.children())
        os.kill(demo.child("change_stream"), signal.SIGKILL)
        status, rows = demo.end()
    assert wrong(rows) == []
    assert status == 0
    assert rows["tweets in MongoDB that are in the topic once"]["found"] > 1000
    assert rows["final windows of tweets_stats, each once"]["found"] >= 3
    assert rows["final windows of users_stats, each once"]["found"] >= 3
    assert rows["restarts that have a cause outside the program"]["found"] == 1
    until_gone(pids)


@pytest.mark.parametrize(
    ("path", "tweets"),
    [*invented("tweets/stream.jsonl", 9), *recorded("tweets/stream-2016-minute-with-deletes.jsonl", 2201)],
)
def test_the_tweets_of_a_file_go_through_and_the_demo_ends_with_them(tmp_path: Path, path: Path, tweets: int) -> None:
    with running(tmp_path / "demo", "--no-spark", "--source", f"replay:{path}", "--rate", "1000") as demo:
        status, rows = demo.end()
    assert wrong(rows) == []
    assert status == 0
    assert rows["tweets in MongoDB that are in the topic once"]["found"] >= tweets


def test_a_second_run_continues_where_the_first_was(tmp_path: Path) -> None:
    counts = []
    for _ in range(2):
        with running(tmp_path / "demo", "--no-spark", "--seconds", "3") as demo:
            status, rows = demo.end()
        assert wrong(rows) == []
        assert status == 0
        counts.append(rows["tweets in MongoDB that are in the topic once"]["found"])
    assert counts[1] > counts[0] + 300
    acked = rows["events of tweets acked by the subscriber once"]["found"]
    assert acked == counts[1] - counts[0]


def test_ctrl_c_ends_it_in_order_with_the_check(tmp_path: Path) -> None:
    with running(tmp_path / "demo", "--no-spark") as demo:
        demo.wait_for("demo ready on")
        pids = list(demo.children())
        demo.process.send_signal(signal.SIGINT)
        status, rows = demo.end()
    assert (status, wrong(rows)) == (0, [])
    until_gone(pids)


def test_nothing_outlives_a_demo_that_is_killed(tmp_path: Path) -> None:
    with running(tmp_path / "demo", "--no-spark") as demo:
        demo.wait_for("demo ready on")
        pids = list(demo.children())
        assert len(pids) == 6
        demo.process.kill()
        until_gone(pids)


def test_a_taken_port_is_reported_in_one_sentence_and_nothing_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "demo", "--no-spark", "--data-dir", str(tmp_path), "--broker-port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, cwd=ROOT)
    assert done.returncode == 2
    (sentence,) = done.stderr.splitlines()
    assert f"port {port} for the broker is in use, choose another with --broker-port" in sentence
    assert not (tmp_path / "logs").exists()


def test_without_java_it_says_how_to_run_without_spark(tmp_path: Path) -> None:
    env = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": ""}
    command = [sys.executable, "-m", "demo", "--free-ports", "--data-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, cwd=ROOT, env=env)
    assert done.returncode == 2
    assert "Java" in done.stderr
    assert "--no-spark" in done.stderr
    assert "Traceback" not in done.stderr
