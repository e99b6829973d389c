"""Each program in `examples/` does what its docstring says, on a real broker."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from subscriber.pytest_plugin import StartedBroker, started_broker
from tests.support.paths import ROOT
from tests.support.waiting import until
from tweetwire import Event, SyncClient
from tweetwire.runtime.launching import ProgramProcess

EXAMPLES = ROOT / "examples"
LIMIT_S = 200
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedBroker]:
    """Start one broker for all examples, like a user who tries them one after the other."""
    with started_broker(tmp_path_factory.mktemp("examples")) as started:
        yield started


def run(name: str, *words: str) -> str:
    """Run an example to its end and return its output."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *words],
        check=False,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def running(log_path: Path, words: list[str], **environment: str) -> Iterator[Callable[[str], None]]:
    """Run a program until the end of the block. Yields a function that waits until a line of its output matches a pattern."""
    program = ProgramProcess(words, log_path, environment=ENVIRONMENT | environment)

    def wait_for(pattern: str) -> None:
        until(lambda: re.search(pattern, program.log()), LIMIT_S, program.log)

    program.launch()
    try:
        yield wait_for
    finally:
        program.stop()


def publish(broker: StartedBroker, topic: str, **messages: Any) -> None:
    """Publish one event for each keyword: its id and its `msg`."""
    with SyncClient(broker.address) as client:
        client.publish_many(topic, [Event(id=id_, msg=msg) for id_, msg in messages.items()])


def stored(broker: StartedBroker, topic: str) -> dict[str, Any]:
    """Return the `msg` of each event of a topic, by id. If several events have an id, the newest one counts."""
    with SyncClient(broker.address) as client:
        return {event.id: event.decode() for event in client.read(topic, "earliest").events}


def test_every_example_has_a_test() -> None:
    files = (Path(__file__), ROOT / "tests" / "bridge" / "test_pipeline_kafka.py")
    tested = {name for file in files for name in re.findall(r'"((?!test_)\w+\.py)"', file.read_text())}
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested


def test_publish_subscribe_prints_only_the_new_orders_in_its_second_run(broker: StartedBroker) -> None:
    for _ in range(2):
        assert re.findall(r": (.+)", run("publish_subscribe.py", "--broker", broker.address)) == ["12.5", "99.0", "3.2"]


def test_work_queue_does_every_job_once_and_repeats_the_failed_tries(broker: StartedBroker) -> None:
    output = run("work_queue.py", "--broker", broker.address, "--jobs", "21", "--workers", "3")
    done = sorted((int(job), int(attempt)) for job, attempt in re.findall(r"job (\d+) at try (\d)", output))
    assert done == [(job, 2 if job % 7 == 0 else 1) for job in range(1, 22)]
    assert output.endswith("21 jobs done\n")


def test_exactly_once_has_the_right_balance_after_a_kill_and_a_second_run(
    broker: StartedBroker, tmp_path: Path
) -> None:
    words = ["--broker", broker.address, "--spool", str(tmp_path), "--payments", "60"]
    first = subprocess.Popen([sys.executable, EXAMPLES / "exactly_once.py", *words], env=ENVIRONMENT)
    while not (tmp_path / "client").exists():
        assert first.poll() is None
    first.kill()
    first.wait()
    for _ in range(2):
        assert run("exactly_once.py", *words) == "60 entries, balance 60\n"


def test_service_writes_an_invoice_for_a_valid_order_and_a_dead_letter_for_another(
    broker: StartedBroker, tmp_path: Path
) -> None:
    publish(broker, "orders", good={"customer": "ada", "total": 12.5}, bad={"customer": "bob", "total": -1})
    with running(
        tmp_path / "log",
        [sys.executable, str(EXAMPLES / "service.py"), "--broker", broker.address, "--metrics-port", "0"],
    ) as wait_for:
        wait_for(r'"event_id": "bad".*"attempt": 3')
    assert stored(broker, "invoices")["invoice-good"] == {"customer": "ada", "due": 12.5}
    assert "invoice-bad" not in stored(broker, "invoices")


def test_watch_collection_prints_an_insert_an_update_and_a_delete(
    broker: StartedBroker, tmp_path: Path, mongo_url: str
) -> None:
    words = [
        "--mongo-url",
        mongo_url,
        "--database",
        "examples_shop",
        "--map",
        "stock=stock",
        "--broker",
        broker.address,
    ]
    with running(tmp_path / "log", [sys.executable, "-m", "change_stream", *words, "--metrics-port", "0"]) as wait_for:
        wait_for(" ready on ")
        with MongoClient[dict[str, Any]](mongo_url) as mongo:
            mongo.drop_database("examples_shop")
            stock = mongo["examples_shop"]["stock"]
            stock.insert_one({"_id": "apple", "count": 3})
            stock.update_one({"_id": "apple"}, {"$set": {"count": 2}})
            stock.delete_one({"_id": "apple"})
        output = run("watch_collection.py", "--broker", broker.address, "--topic", "stock", "--count", "3")
    assert [line.split()[0] for line in output.splitlines()] == ["insert", "update", "delete"]


# Java starts twice, which takes minutes on a busy machine.
@pytest.mark.timeout(600)
def test_spark_totals_publishes_the_revenue_of_each_customer(broker: StartedBroker, tmp_path: Path) -> None:
    publish(broker, "orders", s1={"customer": "eve", "total": 1.5}, s2={"customer": "eve", "total": 2.0})
    run("spark_totals.py", "--broker", broker.address, "--checkpoint", str(tmp_path))
    publish(broker, "orders", s3={"customer": "eve", "total": 4.0})
    run("spark_totals.py", "--broker", broker.address, "--checkpoint", str(tmp_path))
    assert stored(broker, "revenue")["eve"] == {"customer": "eve", "revenue": 7.5, "orders": 3}


def test_replay_to_duckdb_answers_sql_over_all_stored_events(broker: StartedBroker) -> None:
    publish(broker, "readings", **{f"r{number}": {"value": number} for number in range(1500)})
    sql = "select 'sum ' || sum((msg->>'value')::int) || ' of ' || count(*) as answer from events"
    output = run("replay_to_duckdb.py", "--broker", broker.address, "--topic", "readings", "--sql", sql)
    assert f"sum {sum(range(1500))} of 1500" in output


def test_bridge_by_handler_repeats_events_that_the_other_system_refused(broker: StartedBroker, tmp_path: Path) -> None:
    received: list[tuple[str, Any]] = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            received.append((self.headers["Idempotency-Key"], body))
            self.send_response(503 if len(received) == 1 else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    publish(broker, "orders", b1={"customer": "zoe", "total": 9.0})
    with SyncClient(broker.address) as client:
        orders = len(client.read("orders", "earliest").events)
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as endpoint:
        threading.Thread(target=endpoint.serve_forever).start()
        words = [
            sys.executable,
            str(EXAMPLES / "bridge_by_handler.py"),
            "--broker",
            broker.address,
            "--metrics-port",
            "0",
        ]
        with running(tmp_path / "log", words, ENDPOINT=f"http://127.0.0.1:{endpoint.server_port}/orders") as wait_for:
            wait_for("event was not handled")
            until(lambda: len(received) > orders)
        endpoint.shutdown()
    keys = [key for key, _ in received]
    assert (len(keys), len(set(keys)), keys.count(keys[0])) == (orders + 1, orders, 2)
    assert {"customer": "zoe", "total": 9.0} in [body for _, body in received]
