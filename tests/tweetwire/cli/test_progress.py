"""The progress of long work: a bar on a terminal while it runs, and one line at its end."""

import io
import re
import sys

import pytest

from tweetwire.cli.progress import INTERRUPTED, Progress


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_one_line_reports_the_finished_work(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("exporting", "exported", "events", total=2500) as progress:
        progress.advance(2000)
        progress.advance(500)
        progress.note = "to view.json"
    out, errors = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"exported 2,500 events to view\.json in 0\.\d s\n", errors)
    with Progress("exporting", "exported", "events") as progress:
        progress.advance()
    assert capsys.readouterr().err.startswith("exported 1 event in ")


def test_failed_work_has_no_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="full"), Progress("exporting", "exported", "events"):
        raise ValueError("full")
    assert capsys.readouterr().err == ""


def test_work_that_sigterm_ends_does_not_end_with_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught, Progress("exporting", "exported", "events"):
        sys.exit(0)
    assert (caught.value.code, capsys.readouterr().err) == (INTERRUPTED, "")


def test_a_terminal_shows_a_bar_that_disappears_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with Progress("checking", "checked", "files", total=10) as progress:
        progress.advance(10)
    shown = terminal.getvalue()
    assert "checking" in shown
    assert "10/10" in shown
    assert re.search(r"checked 10 files in \d\.\d s\n$", shown)
