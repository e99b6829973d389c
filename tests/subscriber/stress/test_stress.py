"""The stress run as a program with a real broker: the load, the deliberate faults, and the report."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from subscriber.stress.settings import SubscriberSettings
from tests.support.processes import BrokerProcess
from tweetwire import SyncClient

WITHIN_S = 100.0


def stress(broker: BrokerProcess, *flags: object) -> tuple[int, dict[str, Any], str]:
    command = [
        sys.executable,
        "-m",
        "subscriber",
        "--broker",
        broker.address,
        "--metrics-port",
        "0",
        "--report",
        "json",
    ]
    done = subprocess.run([*command, *map(str, flags)], capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_an_open_loop_run_reports_due_sent_confirmed_and_received_events(broker: BrokerProcess, tmp_path: Path) -> None:
    page, figures = tmp_path / "stress.html", tmp_path / "stress.json"
    flags = ("--topic", "t", "--topic", "u", "--as", "s", "--publish-rate", 2000, "--seconds", 2, "--publishers", 2)
    sizes = ("--size", 100, "--size", "1KiB", "--priorities", 5, "--connections", 2)
    status, report, log = stress(broker, *flags, *sizes, "--html", page, "--json-file", figures)
    assert status == 0, log
    load = report["load"]
    assert (load["due"], load["sent"], load["confirmed"]) == (4000, 4000, 4000)
    assert [topic["received"] for topic in report["topics"]] == [2000, 2000]
    assert (report["disordered"], report["twice"], report["not_arrived"]) == (0, 0, 0)
    assert sum(second["received"] for second in report["series"]) == 4000
    assert sum(second["due"] for second in report["series"]) == 4000
    assert report["latency_ms"]["p50"] is not None
    assert json.loads(figures.read_text())["load"] == load
    text = page.read_text()
    assert "events a second" in text
    assert "all was right" in text
    assert "https://cdn" not in text.partition("<body>")[0]
    with SyncClient(broker.address) as client:
        lines, _ = client.read_lines("t", 0)
    events = [json.loads(line) for line in lines]
    assert {event["priority"] for event in events} == set(range(5))
    assert {len(json.dumps(event["msg"], separators=(",", ":"))) for event in events} == {100, 1024}


def test_faults_on_purpose_lose_nothing_and_are_counted(broker: BrokerProcess) -> None:
    flags = (
        "--topic",
        "t",
        "--as",
        "s",
        "--publish-rate",
        1000,
        "--seconds",
        2,
        "--prefetch",
        50,
        "--timeout",
        "300ms",
    )
    faults = ("--nack-share", 0.02, "--stall", 0.01, "--vanish", 0.002, "--connections", 2)
    status, report, log = stress(broker, *flags, *faults)
    assert status == 0, log
    (topic,) = report["topics"]
    assert (topic["received"], topic["lost"], topic["doubled"], topic["pending"]) == (2000, 0, 0, 0)
    assert all(report["faults"][name] > 0 for name in ("nacked", "stalled", "vanished"))
    assert topic["redelivered"] > 0


def test_a_pause_of_the_broker_is_visible_in_the_latency_of_events_due_meanwhile(broker: BrokerProcess) -> None:
    """A pause of the broker also delays the sending, so it must count for every event that was due during the pause."""

    def pause() -> None:
        with SyncClient(broker.address) as client:
            while not any(info.topic == "t" and info.next > 50 for info in client.topics()):
                time.sleep(0.01)
        os.kill(broker.pid, signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(broker.pid, signal.SIGCONT)

    pausing = threading.Thread(target=pause)
    pausing.start()
    status, report, log = stress(broker, "--topic", "t", "--as", "s", "--publish-rate", 500, "--seconds", 8)
    pausing.join()
    assert status == 0, log
    # Of the 4,000 events, 750 were due in the pause; the 500 first of them waited longer than half a second.
    assert report["latency_ms"]["max"] > 1000
    assert report["latency_ms"]["p99"] > 500
    assert report["load"]["confirm_ms"]["p99"] > 500


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"publish_rate": 5}, "--publish-rate needs --seconds"),
        ({"vanish": 0.1}, "--vanish needs --as"),
        ({"nack_share": 0.6, "stall": 0.6}, "must not exceed 1"),
    ],
)
def test_settings_that_make_no_sense_are_reported_in_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        SubscriberSettings(topic=["t"], **settings)
