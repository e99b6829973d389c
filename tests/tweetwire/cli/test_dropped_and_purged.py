"""Topics that are dropped, made again or purged while a command reads them."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from broker.restore_backup import restore_backup
from tests.support.commands import PATIENCE_S, Tweetwire
from tests.support.processes import BrokerProcess
from tweetwire import Event, SyncClient
from tweetwire.cli.backup_copy import BrokerCopy


def publish(client: SyncClient, topic: str, count: int, size: int = 1) -> None:
    client.publish_many(topic, (Event(id=str(n), msg="x" * size) for n in range(count)))


@pytest.mark.parametrize("command", ["tail", "sub"])
def test_a_drop_ends_a_command_that_waits_for_events(
    tweetwire: Tweetwire, shared_client: SyncClient, command: str
) -> None:
    topic = f"dropped-{command}"
    publish(shared_client, topic, 3)
    with tweetwire.started(command, topic, "--from", "earliest", "--json") as process:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        shared_client.drop(topic)
        out, errors = process.communicate(timeout=PATIENCE_S)
    assert (out, process.returncode, errors.count("\n")) == ("", 2, 1)
    expected = ("is being dropped", "there is no topic") if command == "tail" else ("ended",)
    assert any(text in errors for text in expected), errors


def test_a_tail_continues_after_a_purge(tweetwire: Tweetwire, shared_client: SyncClient, topic: str) -> None:
    publish(shared_client, topic, 30)
    with tweetwire.started("tail", topic, "--json", "-n", 2) as process:
        assert process.stdout is not None
        assert [json.loads(process.stdout.readline())["offset"] for _ in range(2)] == [28, 29]
        shared_client.purge(topic)
        shared_client.publish(topic, Event(id="later", msg=1))
        assert json.loads(process.stdout.readline())["offset"] == 30
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    assert [
        json.loads(line)["offset"]
        for line in tweetwire("tail", topic, "-n", 9, "--no-follow", "--json").out.splitlines()
    ] == [30]


@pytest.mark.parametrize("change", ["purge", "drop", "made again"])
def test_an_export_meets_a_change_of_its_topic(
    tweetwire: Tweetwire, shared_client: SyncClient, tmp_path: Path, change: str
) -> None:
    topic = f"exported-{change.split(maxsplit=1)[0]}"
    publish(shared_client, topic, 20_000, 1000)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(pipe, os.O_WRONLY)
    # The full pipe blocks the command. So the topic changes after the command has read only a part of it.
    with tweetwire.started("export", topic, stdout=writer) as process:
        os.close(writer)
        os.set_blocking(reader, True)
        data = os.read(reader, 1 << 16)
        if change == "purge":
            shared_client.purge(topic, 19_000)
        else:
            shared_client.drop(topic)
        if change == "made again":
            publish(shared_client, topic, 3)
        rest: list[bytes] = []
        thread = threading.Thread(target=_drain, args=(reader, rest))
        thread.start()
        assert process.stderr is not None
        errors = process.stderr.read()
        status = process.wait(PATIENCE_S)
        thread.join()
    os.close(reader)
    if change == "purge":
        assert status == 0
        offsets = [json.loads(line)["offset"] for line in (data + b"".join(rest)).splitlines()]
        assert offsets == sorted(offsets)
        assert {0, 19_000, 19_999} <= set(offsets)
        assert len(offsets) < 20_000
    else:
        assert status == 2
        assert "dropped" in errors or "there is no topic" in errors
        assert errors.count("\n") == 1


def _drain(reader: int, into: list[bytes]) -> None:
    while data := os.read(reader, 1 << 16):
        into.append(data)


def test_a_backup_leaves_dropped_topics_out_and_copies_the_events_that_a_purge_has_left(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "first") as broker, SyncClient(broker.address) as client:
        for topic in ("dropped", "again", "purged", "emptied"):
            publish(client, topic, 50)
            client.unsubscribe(client.subscribe(topic, as_="s", from_="earliest", prefetch=1))
        (tmp_path / "copy").mkdir()
        copy = BrokerCopy(client, tmp_path / "copy")
        client.drop("dropped")
        client.drop("again")
        publish(client, "again", 60, 2)
        client.purge("purged", 20)
        client.purge("emptied")
        publish(client, "emptied", 5)
        manifest = copy.finish(lambda _: None)
    topics = {topic.topic: topic for topic in manifest.topics}
    assert manifest.dropped == ["again", "dropped"]
    assert (topics["purged"].events, topics["purged"].missing) == (30, 20)
    assert (topics["emptied"].events, topics["emptied"].next) == (0, 50)
    restore_backup(tmp_path / "copy", manifest, tmp_path / "second", lambda _: None)
    with BrokerProcess(tmp_path / "second") as broker, SyncClient(broker.address) as client:
        figures = client.stats()["topics"]
        assert {name: (one["earliest"], one["next"]) for name, one in figures.items() if one["next"]} == {
            "purged": (20, 50),
            "emptied": (50, 50),
        }
        assert figures["purged"]["subscriptions"]["s"]["pending"] == 30
        assert client.publish("emptied", Event(id="new", msg=1)).first == 50
