"""``python -m subscriber`` with a real broker: its reports, and its exit status."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from demo.ports import free_port
from tests.support.certificates import files_of
from tests.support.processes import BrokerProcess, Process
from tests.support.users import entry
from tests.support.waiting import until
from tweetwire import Event, SyncClient

WITHIN_S = 30.0
NUMBERS = itertools.count()


def command(address: str, *flags: str) -> list[str]:
    base = [sys.executable, "-m", "subscriber", "--broker", address, "--metrics-port", "0", "--report", "json"]
    return [*base, *flags]


def run(broker: BrokerProcess, *flags: str, **environment: str) -> tuple[int, dict[str, Any]]:
    """Run a subscriber to its end. Return its exit status and its final report."""
    done = subprocess.run(
        command(broker.address, *flags),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


class Running:
    """A subscriber that runs until the test ends it. Its reports are read from its log."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._seen = 0

    def reports(self) -> list[dict[str, Any]]:
        """Return all reports so far."""
        lines = self.process.log().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith('{"report"') and line.endswith("\n")]

    def report(self) -> dict[str, Any]:
        """Wait for the next report."""
        until(lambda: len(self.reports()) > self._seen, WITHIN_S, self.process.log)
        self._seen += 1
        return self.reports()[self._seen - 1]

    def report_once(self, received: int) -> dict[str, Any]:
        """Read reports until one has `received` events."""
        deadline = time.monotonic() + WITHIN_S
        while (report := self.report())["topics"][0]["acked"] < received:
            assert time.monotonic() < deadline, report
        return report

    def end(self) -> tuple[int, dict[str, Any]]:
        status = self.process.terminate(WITHIN_S)
        return status, self.reports()[-1]


@contextmanager
def running(broker: BrokerProcess, *flags: str) -> Iterator[Running]:
    """Start a subscriber, which is ready when the block begins."""
    log_path = broker.data_dir.with_name(f"subscriber-{next(NUMBERS)}.log")
    with Process(log_path, *command(broker.address, *flags)[2:]) as process:
        yield Running(process)


def publish(broker: BrokerProcess, count: int, topic: str = "t", priorities: int = 7) -> None:
    dice = Random(1)
    with SyncClient(broker.address) as client:
        client.publish_many(topic, [Event(id=str(n), msg=n, priority=dice.randrange(priorities)) for n in range(count)])


def figures(report: dict[str, Any], *names: str) -> list[Sequence[Any]]:
    return [tuple(topic[name] for name in names) for topic in report["topics"]]


def test_the_subscriber_acks_all_events_and_reports_them(broker: BrokerProcess) -> None:
    publish(broker, 5000)
    publish(broker, 1000, topic="u")
    status, report = run(broker, "--topic", "t", "--topic", "u", "--as", "s", "--from", "earliest", "--count", "6000")
    assert status == 0
    names = ("topic", "received", "acked", "settled", "redelivered", "doubled", "lost", "pending")
    assert figures(report, *names) == [("t", 5000, 5000, 5000, 0, 0, 0, 0), ("u", 1000, 1000, 1000, 0, 0, 0, 0)]
    assert report["events"] == 6000
    assert report["latency_ms"]["p50"] <= report["latency_ms"]["p99"] <= report["latency_ms"]["max"]


def test_a_second_run_continues_where_the_first_ended(broker: BrokerProcess) -> None:
    publish(broker, 5000)
    flags = ("--topic", "t", "--as", "s", "--from", "earliest", "--prefetch", "10")
    status, first = run(broker, *flags, "--count", "1000")
    assert status == 0
    pending = first["topics"][0]["pending"]
    assert pending > 0
    status, second = run(broker, *flags, "--count", str(5000 - first["topics"][0]["acked"]))
    assert status == 0
    assert first["topics"][0]["acked"] + second["topics"][0]["acked"] == 5000
    assert figures(second, "lost", "doubled", "pending") == [(0, 0, 0)]


def test_several_connections_share_a_durable_subscription(broker: BrokerProcess) -> None:
    publish(broker, 5000)
    flags = ("--topic", "t", "--as", "s", "--from", "earliest", "--connections", "4", "--prefetch", "50")
    status, report = run(broker, *flags, "--count", "5000")
    assert status == 0
    assert figures(report, "received", "lost", "doubled") == [(5000, 0, 0)]


def test_without_a_name_each_connection_has_all_events_from_then_on(broker: BrokerProcess) -> None:
    publish(broker, 100)
    with running(broker, "--topic", "t", "--connections", "2") as subscriber:
        publish(broker, 3000)
        subscriber.report_once(3000)
        status, report = subscriber.end()
    assert status == 0
    assert figures(report, "received", "acked", "lost", "doubled") == [(3000, 3000, 0, 0)] * 2
    assert len({topic["subscription"] for topic in report["topics"]}) == 2


def test_a_stop_returns_unacked_events_and_reports_them_as_pending(broker: BrokerProcess) -> None:
    publish(broker, 2000)
    flags = ("--topic", "t", "--as", "s", "--from", "earliest", "--prefetch", "20", "--delay", "5ms")
    with running(broker, *flags) as subscriber:
        subscriber.report_once(1)
        status, report = subscriber.end()
    assert status == 0
    (topic,) = report["topics"]
    assert (topic["lost"], topic["doubled"]) == (0, 0)
    assert topic["pending"] == 2000 - topic["received"]
    assert 0 <= topic["received"] - topic["acked"] <= 20


def test_a_killed_broker_loses_and_doubles_nothing(broker: BrokerProcess) -> None:
    with running(broker, "--topic", "t", "--as", "s", "--from", "earliest", "--prefetch", "500") as subscriber:
        publish(broker, 20_000)
        broker.kill()
        broker.start()
        publish(broker, 1000)
        subscriber.report_once(21_000)
        status, report = subscriber.end()
    assert figures(report, "received", "acked", "lost", "doubled") == [(21_000, 21_000, 0, 0)]
    assert status == 0


def test_events_that_the_broker_regards_as_done_but_never_delivered_are_lost(broker: BrokerProcess) -> None:
    # The events take longer than a busy machine needs until the first report.
    publish(broker, 1000, priorities=1)
    flags = ("--topic", "t", "--as", "s", "--from", "earliest", "--prefetch", "1", "--delay", "50ms")
    with running(broker, *flags) as subscriber:
        subscriber.report_once(1)
        end_and_subscribe_anew(broker)
        status, report = subscriber.end()
    assert status == 1
    (topic,) = report["topics"]
    assert topic["lost"] > 0
    assert topic["received"] + topic["lost"] == 1000
    assert topic["missing"] == [[topic["received"], 999]]


def end_and_subscribe_anew(broker: BrokerProcess) -> None:
    """End the subscription with its pending events, and create it again under the same name."""
    with SyncClient(broker.address) as client:
        client.unsubscribe(client.subscribe("t", as_="s"), end=True)
        client.subscribe("t", as_="s")


def test_events_of_a_broker_that_forgot_its_subscriptions_are_reported_as_doubled(broker: BrokerProcess) -> None:
    publish(broker, 500)
    with running(broker, "--topic", "t", "--as", "s", "--from", "earliest") as subscriber:
        subscriber.report_once(500)
        broker.kill()
        shutil.rmtree(broker.data_dir / "state")
        broker.start()
        while subscriber.report()["topics"][0]["doubled"] < 500:
            pass
        status, report = subscriber.end()
    assert status == 1
    assert figures(report, "received", "doubled") == [(500, 500)]


def test_metrics_have_the_figures_of_the_report(broker: BrokerProcess) -> None:
    publish(broker, 300)
    port = free_port()
    with running(broker, "--topic", "t", "--as", "s", "--from", "earliest", "--metrics-port", str(port)) as subscriber:
        subscriber.report_once(300)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    assert 'tweetwire_subscriber_settled_total{subscription="s",topic="t"} 300.0' in lines
    assert 'tweetwire_subscriber_latency_seconds_bucket{le="+Inf"} 300.0' in lines


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--topic", "t", "--broker", "127.0.0.1:1"), "no broker answers at 127.0.0.1:1 (Connection refused)"),
        (("--topic", "no spaces"), "--topic"),
        ((), "--topic: is needed"),
        (("--topic", "t", "--as", "s", "--from", "yesterday"), "the broker refuses the subscription to t"),
    ],
)
def test_a_failed_start_is_reported_in_one_sentence_with_status_2(
    broker: BrokerProcess, flags: tuple[str, ...], sentence: str
) -> None:
    done = subprocess.run(
        command(broker.address, *flags), capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 2
    assert sentence in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_with_a_users_token_and_over_tls_it_subscribes_and_its_publishers_publish(
    tmp_path: Path, certificates: Path
) -> None:
    users = tmp_path / "users.toml"
    users.write_text(entry("stress", "s-secret"))
    login = {"USER": "stress", "TOKEN": "s-secret"}
    login |= {"TLS_CA": f"{certificates}/ca.pem", "TLS_CERT": f"{certificates}/client.pem"}
    login["TLS_KEY"] = f"{certificates}/client.key"
    variables = {f"TWEETWIRE_SUBSCRIBER_BROKER_{name}": value for name, value in login.items()}
    with BrokerProcess(tmp_path / "broker", "--users", users, *files_of(certificates, "server")) as broker:
        status, report = run(broker, "--topic", "t", "--publish-rate", "200", "--seconds", "1", **variables)
    assert status == 0, report
    assert report["topics"][0]["acked"] == report["load"]["confirmed"] > 0


def test_a_refused_login_ends_with_the_flags_to_see(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(entry("reader", "r-secret", publish="[]"))
    reader, wrong = ["reader", "r-secret"], ["reader", "r-wrong"]
    unknown = "unauthenticated no such name and token; see --broker-user and --broker-token"
    with BrokerProcess(tmp_path / "broker", "--users", users) as broker:
        for words, who, sentence in (
            (["--topic", "t", "--metrics-port", "0"], wrong, f"refuses the subscription to t: {unknown}"),
            (["publish", "--topic", "t"], wrong, f"the broker at {broker.address} refuses: {unknown}"),
            (["publish", "--topic", "t"], ["", ""], "it has users; set --broker-user and --broker-token"),
            (
                ["publish", "--topic", "t"],
                reader,
                "forbidden reader needs a publish pattern for t; the file of the broker's",
            ),
            (["history"], wrong, f"there is no history to read from handler_history: {unknown}"),
        ):
            login = ["--broker-user", who[0], "--broker-token", who[1]]
            done = subprocess.run(
                [sys.executable, "-m", "subscriber", *words, "--broker", broker.address, *login],
                capture_output=True,
                text=True,
                timeout=WITHIN_S,
                check=False,
            )
            assert sentence in done.stderr.splitlines()[-1], done.stderr
            assert done.returncode == 2
            assert "-wrong" not in done.stderr


def test_a_broker_that_speaks_tls_is_reported_with_the_flags_to_see(tmp_path: Path, certificates: Path) -> None:
    with BrokerProcess(tmp_path / "broker", *files_of(certificates, "server")[:2]) as broker:
        for words, sentence in (
            (["--topic", "t"], "speaks TLS only, and this client does not; see --broker-tls"),
            (["publish", "--topic", "t", "--broker-tls-ca", f"{certificates}/other.pem"], "; see --broker-tls-ca"),
        ):
            done = subprocess.run(
                [sys.executable, "-m", "subscriber", *words, "--broker", broker.address],
                capture_output=True,
                text=True,
                timeout=WITHIN_S,
                check=False,
            )
            assert done.returncode == 2
            assert done.stderr.splitlines()[-1].endswith(sentence), done.stderr
            assert "Traceback" not in done.stderr
