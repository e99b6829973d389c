"""Launching programs: wait until they serve, end them in order or at once, and show the log of a failed start."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tweetwire.protocol.errors import StartError
from tweetwire.runtime.launching import ProgramProcess, ReadyLine

SERVES = "import sys, time; print('thing ready on 127.0.0.1:4711', flush=True); time.sleep(60)"
STUBBORN = """
    import signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready on here", flush=True)
    time.sleep(60)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


def test_a_block_starts_a_program_and_ends_it(tmp_path: Path) -> None:
    with ProgramProcess(python(SERVES), tmp_path / "log") as program:
        assert program.address == "127.0.0.1:4711"
        assert program.is_running
    assert not program.is_running
    assert program.process.returncode == -15


def test_a_program_that_ends_before_it_serves_is_refused_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"did not start:\nno disk"):
        ProgramProcess(python("import sys; sys.exit('no disk')"), tmp_path / "log").start()


def test_a_program_that_never_serves_is_killed_after_its_time(tmp_path: Path) -> None:
    program = ProgramProcess(python("import time; time.sleep(60)"), tmp_path / "log", start_within_s=0.2)
    with pytest.raises(StartError, match="did not start"):
        program.start()
    assert not program.is_running


def test_a_program_that_does_not_end_in_time_is_killed(tmp_path: Path) -> None:
    program = ProgramProcess(python(STUBBORN), tmp_path / "log")
    program.start()
    with pytest.raises(subprocess.TimeoutExpired):
        program.terminate(0.1)
    program.stop(0.1)
    assert program.process.returncode == -9


def test_the_line_of_an_earlier_start_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("thing ready on 127.0.0.1:1\n")
    line = ReadyLine(log)
    assert line.address() is None
    with log.open("a") as more:
        more.write('{"event": "thing ready on 127.0.0.1:2", "level": "info"}\n')
    assert line.address() == "127.0.0.1:2"


def test_a_pattern_without_a_group_names_no_address(tmp_path: Path) -> None:
    line = ReadyLine(tmp_path / "log", "Waiting for connections")
    assert line.address() is None
    (tmp_path / "log").write_text("Waiting for connections")
    assert line.address() == ""


def test_a_program_that_was_not_started_has_no_process(tmp_path: Path) -> None:
    program = ProgramProcess(python(SERVES), tmp_path / "log")
    program.stop()
    with pytest.raises(RuntimeError, match="was not started"):
        program.wait()
