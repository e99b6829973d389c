"""The demo reads the subscriber's reports from its log, also after restarts and with incomplete lines."""

import json
from pathlib import Path

import pytest

from demo.subscriber_log import SubscriberLog


def line(seconds: float, acked: int, doubled: int = 0, report: str = "second", lost: int | None = None) -> str:
    figures = {"topic": "tweets", "acked": acked, "doubled": doubled, "redelivered": 0, "lost": lost}
    latency = {"p50": 1.5, "p95": None}
    of = {"report": report, "seconds": seconds, "per_second": 1.0, "latency_ms": latency, "topics": [figures]}
    return json.dumps(of, separators=(",", ":")) + "\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "subscriber.log"


def append(path: Path, text: str) -> None:
    with path.open("a") as log:
        log.write(text)


def test_without_a_log_all_figures_are_zero(path: Path) -> None:
    log = SubscriberLog(path)
    log.read()
    assert log.last is None
    assert log.total("tweets", "acked") == 0


def test_the_last_report_counts(path: Path) -> None:
    log = SubscriberLog(path)
    append(path, '{"event":"subscriber ready on 127.0.0.1:1"}\n' + line(1, 10) + line(2, 30))
    log.read()
    append(path, line(2.4, 31, report="final", lost=2))
    log.read()
    assert (log.total("tweets", "acked"), log.total("tweets", "lost")) == (31, 2)
    assert log.total("users", "acked") == 0


def test_the_reports_of_an_earlier_run_do_not_count(path: Path) -> None:
    append(path, line(9, 900, doubled=1))
    log = SubscriberLog(path)
    append(path, line(1, 10))
    log.read()
    assert (log.total("tweets", "acked"), log.total("tweets", "doubled")) == (10, 0)


def test_processes_that_were_killed_add_up(path: Path) -> None:
    log = SubscriberLog(path)
    append(path, line(1, 10) + line(2, 20, doubled=1) + line(1, 5))
    log.read()
    assert (log.total("tweets", "acked"), log.total("tweets", "doubled")) == (25, 1)


def test_a_line_that_is_still_being_written_waits(path: Path) -> None:
    log = SubscriberLog(path)
    text = line(1, 10)
    append(path, text[:40])
    log.read()
    assert log.last is None
    append(path, text[40:])
    log.read()
    assert log.total("tweets", "acked") == 10


def test_a_line_torn_by_a_kill_is_passed_over(path: Path) -> None:
    log = SubscriberLog(path)
    append(path, line(1, 10) + line(2, 20)[:50] + '{"event":"subscriber ready on 127.0.0.1:1"}\n' + line(0.5, 7))
    log.read()
    assert log.total("tweets", "acked") == 17
