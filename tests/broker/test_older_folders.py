"""A broker opens a data folder of the previous release, and loses nothing in it.

`older/folder` was written by a broker of November 2026 (commit 0bd7a7d) that was then killed. It holds 20 events of three
priorities, acks, a dead letter, producers, documents, and a message held by ``pub2``. It also has a schema that today's broker
refuses.
"""

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import BrokerProcess
from tweetwire import Event, SyncClient

FOLDER = Path(__file__).parent / "older/folder"


@pytest.fixture
def older(tmp_path: Path) -> Iterator[BrokerProcess]:
    shutil.copytree(FOLDER, tmp_path / "broker")
    with BrokerProcess(tmp_path / "broker") as process:
        yield process


def answers(broker: BrokerProcess, *lines: str) -> list[str]:
    """Send commands as a client that calls itself worker, and return the answer to each."""
    with socket.create_connection(("127.0.0.1", broker.port), 20) as connection, connection.makefile("r") as incoming:
        connection.sendall("".join(f"{line}\n" for line in ("hello worker", *lines)).encode())
        greetings = [incoming.readline() for _ in range(2)]
        assert all(greeting.startswith("+OK ") for greeting in greetings)
        return [incoming.readline().rstrip("\n") for _ in lines]


def test_events_subscriptions_producers_and_documents_are_as_they_were(older: BrokerProcess) -> None:
    with SyncClient(older.address) as client:
        assert [bytes(event.msg) for event in client.read("t", 0).events] == [b"%d" % n for n in (*range(20), 1)]
        subscription = client.stats()["topics"]["t"]["subscriptions"]["s"]
        # One event was acked and one is dead. The events that were in flight wait again.
        assert [subscription[figure] for figure in ("pending", "in_flight", "dead")] == [19, 0, 1]
        position = client.last("t", "pr")
        assert position is not None
        assert (position.offset, position.sequence, position.checkpoint) == (20, 5, "cp")
        assert client.publish("t", Event(id="p1", msg=1, producer="pr", sequence=5)).is_duplicate
    description, retention = answers(older, "describe t", "retain t")
    assert '"description":"some text"' in description
    assert "bytes=10GiB" in retention or "bytes=10.0GiB" in retention


def test_a_dead_event_is_redriven_with_its_history(older: BrokerProcess) -> None:
    dead, redriven = answers(older, "dead topic=t as=s", "redrive t as=s all")
    (letter,) = json.loads(dead.removeprefix("+OK dead "))
    assert [error["message"] for error in letter["errors"]] == ["broken"]
    assert redriven == "+OK redrive t 1"


def test_a_held_message_is_released(older: BrokerProcess) -> None:
    assert answers(older, "pubrel t held") == ["+COMP t held 21 synced"]


def test_a_topic_whose_schema_is_refused_today_takes_no_event_until_another_is_set(older: BrokerProcess) -> None:
    refused, _, taken = answers(
        older, 'pub bad {"id":"1","msg":1}', 'schema bad {"type":"integer"}', 'pub bad {"id":"1","msg":1}'
    )
    assert refused.startswith("-ERR schema this topic's schema is of an older broker")
    assert taken == "+OK pub bad 0 synced"
