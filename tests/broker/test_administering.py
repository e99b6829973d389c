"""Topics that are made, purged and dropped on a real broker, and the folder that they leave."""

import json
import os
import signal
import socket
from pathlib import Path
from typing import IO

import pytest

from tests.support.processes import BrokerProcess
from tests.support.waiting import until
from tweetwire import Event, Refusal, SyncClient
from tweetwire.cli import main

SMALL = ("--segment-bytes", "2KiB", "--reserve-bytes", "64KiB")


def publish(client: SyncClient, topic: str, count: int) -> None:
    client.publish_many(topic, (Event(id=f"m{n}", msg="x" * 100) for n in range(count)))


def segments(folder: Path, topic: str = "t") -> list[Path]:
    return list((folder / "topics" / topic).glob("*.jsonl"))


def ids(client: SyncClient, topic: str = "t") -> list[str]:
    return [event.id for event in client.read(topic, "earliest").events]


def test_a_broker_that_creates_no_topics_refuses_an_unknown_one_until_it_is_created(tmp_path: Path) -> None:
    flags = ("--no-create-topics", "--topic", "made")
    with BrokerProcess(tmp_path / "data", *flags) as broker, SyncClient(broker.address) as client:
        client.publish("made", Event(id="1", msg=1))
        with pytest.raises(Refusal, match="create oders"):
            client.publish("oders", Event(id="1", msg=1))
        assert client.create("orders", age="7d")
        client.publish("orders", Event(id="1", msg=1))
        assert [info.topic for info in client.topics()] == ["dead_letters", "made", "orders"]


def test_the_files_of_purged_events_are_removed_and_no_restart_brings_the_events_back(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", *SMALL) as broker:
        with SyncClient(broker.address) as client:
            for _ in range(5):
                publish(client, "t", 20)
            before = len(segments(tmp_path / "data"))
            assert client.purge("t", 55) == 55
            assert ids(client) == [f"m{n % 20}" for n in range(55, 100)]
            until(lambda: len(segments(tmp_path / "data")) < before)
        for _ in range(2):
            broker.kill()
            broker.start()
            with SyncClient(broker.address) as client:
                assert ids(client) == [f"m{n % 20}" for n in range(55, 100)]
        with SyncClient(broker.address) as client:
            assert client.purge("t") == 100
            until(lambda: [path.stat().st_size for path in segments(tmp_path / "data")] == [0])
        broker.kill()
        broker.start()
        with SyncClient(broker.address) as client:
            assert (ids(client), client.publish("t", Event(id="new", msg=1)).first) == ([], 100)


def test_a_dropped_topic_leaves_no_file_and_a_configured_one_is_made_again_at_a_start(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--topic", "t", *SMALL) as broker:
        with SyncClient(broker.address) as client:
            publish(client, "t", 50)
            client.subscribe("t", as_="s", from_="earliest")
            client.drop("t")
            assert not (tmp_path / "data" / "topics" / "t").exists()
            until(lambda: not list((tmp_path / "data" / "dropped").iterdir()))
        broker.kill()
        broker.start()
        with SyncClient(broker.address) as client:
            assert (ids(client), client.stats("t")["topics"]["t"]["subscriptions"]) == ([], {})


def test_a_drop_that_was_cut_after_the_rename_gives_nothing_of_the_old_topic_to_a_new_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, "--topic", "t", *SMALL) as broker:
        with SyncClient(broker.address) as client:
            publish(client, "t", 50)
            subscription = client.subscribe("t", as_="s", from_="earliest")
            subscription.ack(subscription.take()[:5])
        broker.kill()
        (data / "dropped").mkdir()
        (data / "topics" / "t").rename(data / "dropped" / "t.0")
        signals = signal.getsignal(signal.SIGTERM)
        assert main(["fsck", str(data), "--json"]) == 0
        signal.signal(signal.SIGTERM, signals)
        found = {one["file"]: one["holds"] for one in json.loads(capsys.readouterr().out)}
        assert found["dropped/t.0"] == "a dropped topic, which the next start deletes"
        broker.start()
        until(lambda: not list((data / "dropped").iterdir()))
        with SyncClient(broker.address) as client:
            assert client.stats("t")["topics"]["t"]["subscriptions"] == {}
            publish(client, "t", 3)
        # Even if the newest snapshot is lost, an older one gives nothing to the new topic.
        broker.kill()
        (data / "state" / "snapshot").write_bytes(b"damaged")
        broker.start()
        with SyncClient(broker.address) as client:
            assert (ids(client), client.stats("t")["topics"]["t"]["subscriptions"]) == (["m0", "m1", "m2"], {})


def test_a_drop_that_the_disk_refuses_is_answered_and_the_topic_stays(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, *SMALL) as broker, SyncClient(broker.address) as client:
        publish(client, "t", 5)
        # A link in the place of the folder could lead out of the data directory.
        os.symlink(tmp_path, data / "dropped")
        with pytest.raises(Refusal, match=r"disk .*the topic stays"):
            client.drop("t")
        (data / "dropped").unlink()
        publish(client, "t", 1)
        assert len(ids(client)) == 6
        client.drop("t")


def test_reads_fetches_and_publishes_beside_a_drop_are_answered_and_none_reaches_the_next_topic(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "data", "--recent-bytes", "1KiB", *SMALL) as broker:
        for number in range(20):
            with SyncClient(broker.address) as client:
                publish(client, "t", 500)
            with socket.create_connection(("127.0.0.1", broker.port), 60) as busy, busy.makefile("rb") as lines:
                lines.readline()
                # Lines that are no longer in memory are read from files, while another connection drops the topic.
                busy.sendall(b"sub t as=s from=earliest prefetch=500\n" + b"read t earliest limit=500\n" * 20)
                with SyncClient(broker.address) as client:
                    client.drop("t")
                    client.publish("t", Event(id=f"new{number}", msg=1))
                busy.sendall(b"ping\n")
                assert received_until_pong(lines)
            with SyncClient(broker.address) as client:
                assert ids(client) == [f"new{number}"]
                assert client.stats("t")["topics"]["t"]["subscriptions"] == {}
                assert client.stats()["damaged"] == 0
                client.drop("t")
        assert not broker.said("a bug")


def received_until_pong(lines: IO[bytes]) -> list[bytes]:
    received = [line for line in iter(lines.readline, b"+PONG\n") if line]
    refusals = {line for line in received if line.startswith(b"-")}
    assert refusals <= {b"-ERR unknown_topic there is no topic t\n", b"-ERR busy t is being dropped; try again\n"}
    return received


def test_a_snapshot_beside_a_drop_does_not_bring_the_topic_back(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", *SMALL) as broker:
        with SyncClient(broker.address) as client, SyncClient(broker.address) as other:
            description = "x" * 16_000
            for number in range(30):
                publish(client, "t", 3)
                client.subscribe("t", as_=f"s{number}", from_="earliest")
                # The journal is large after some of these, and the next one writes a snapshot.
                for _ in range(20):
                    other.command(f"describe u {description}")
                client.drop("t")
            publish(client, "t", 1)
        broker.kill()
        broker.start()
        with SyncClient(broker.address) as client:
            assert (len(ids(client)), client.stats("t")["topics"]["t"]["subscriptions"]) == (1, {})
