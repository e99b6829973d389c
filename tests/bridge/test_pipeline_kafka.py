"""MongoDB -> change stream -> broker -> Kafka -> Spark, a plain consumer, and a second broker: each change once."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from tests.bridge.programs import Bridge, verified, wait_for_carried
from tests.change_stream.programs import Publisher
from tests.support.kafka_servers import KafkaServer, find_spark_kafka, header, read_messages
from tests.support.paths import ROOT
from tests.support.processes import BrokerProcess
from tests.support.waiting import until

CHANGES = 300
LIMIT_S = 600


def read_by_spark(servers: str, out: Path) -> list[dict[str, Any]]:
    """Run the example, and return the rows that it has written so far."""
    words = (str(ROOT / "examples" / "spark_reads_kafka.py"), servers, "tweets", str(out), find_spark_kafka())
    done = subprocess.run(
        [sys.executable, *words], check=False, capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return [json.loads(line) for file in (out / "rows").glob("*.json") for line in file.read_text().splitlines()]


@pytest.mark.stack
@pytest.mark.timeout(1500)
def test_each_change_reaches_spark_a_consumer_and_a_second_broker_once(
    tmp_path: Path, mongo_url: str, broker: BrokerProcess
) -> None:
    find_spark_kafka()
    database = "test_pipeline_kafka"
    with (
        MongoClient[dict[str, Any]](mongo_url) as client,
        KafkaServer(tmp_path / "kafka") as kafka,
        BrokerProcess(tmp_path / "second") as second,
    ):
        client.drop_database(database)
        tweets = client[database]["tweets"]
        outward, inward = f"tweets -> {kafka.url('tweets')}", f"{kafka.url('tweets')} -> tweets"
        publisher = Publisher(tmp_path / "log", mongo_url, broker.address, database, "--map", "tweets=tweets")
        out = Bridge(tmp_path / "out.log", broker.address, "--out", f"{outward}?partitions=3")
        into = Bridge(tmp_path / "in.log", second.address, "--in", inward)
        with publisher, out, into:
            tweets.insert_many([{"_id": str(number), "n": number} for number in range(CHANGES)])
            wait_for_carried(broker.address, "tweets", CHANGES)
            until(lambda: f"{CHANGES} compared" in verified(broker.address, outward), 60)
            first = read_by_spark(kafka.servers, tmp_path / "spark")
            assert sorted(row["n"] for row in first) == list(range(CHANGES))
            # A second run of the Spark program continues after the first one.
            tweets.delete_many({"n": {"$lt": 10}})
            wait_for_carried(broker.address, "tweets", CHANGES + 10)
            until(lambda: f"{CHANGES + 10} compared" in verified(broker.address, outward), 60)
            rows = read_by_spark(kafka.servers, tmp_path / "spark")
            assert sorted(row["offset"] for row in rows) == list(range(CHANGES + 10))
            assert [row["op"] for row in rows].count("delete") == 10
            consumed = [int(header(one, "ce_offset")) for one in read_messages(kafka.servers, "tweets")]
            assert sorted(consumed) == list(range(CHANGES + 10))
            taken = wait_for_carried(second.address, "tweets", CHANGES + 10)
            assert sorted(one.id for one in taken if one.decode()["op"] == "insert") == sorted(map(str, range(CHANGES)))
            assert len(taken) == CHANGES + 10
            assert f"{CHANGES + 10} compared" in verified(second.address, inward)
        client.drop_database(database)
