"""Delayed and expiring events on a real broker: kills, backups, hostile lines, metrics, and older readers."""

import json
import socket
import time
from pathlib import Path

import pytest
from msgspec import UNSET

from tests.support.processes import BrokerProcess
from tests.support.waiting import until
from tweetwire import Event, SyncClient
from tweetwire.cli import main


def ask(broker: BrokerProcess, *lines: str) -> list[str]:
    """Send commands as typed lines, and return the reply to each."""
    replies: list[str] = []
    with socket.create_connection(("127.0.0.1", broker.port), 20) as connection, connection.makefile("r") as incoming:
        incoming.readline()
        for line in lines:
            # The broker would merge the confirmations of consecutive events into one line.
            connection.sendall(f"{line}\n".encode())
            replies.append(incoming.readline().rstrip("\n"))
    return replies


def subscribe(broker: BrokerProcess, name: str = "s") -> None:
    assert ask(broker, f"sub t as={name} from=earliest create")[0].startswith("+OK sub t ")


def figures(client: SyncClient, name: str = "s") -> dict[str, int]:
    found: dict[str, int] = client.stats()["topics"]["t"]["subscriptions"][name]
    return found


def take_all(client: SyncClient, count: int, name: str = "s") -> list[str]:
    """Take and ack `count` events, and check that none is early."""
    taken: list[str] = []
    subscription = client.subscribe("t", as_=name)
    while len(taken) < count:
        events = subscription.take(20)
        assert events, taken
        for event in events:
            assert not isinstance(event.due, int) or event.due <= time.time() * 1000
        subscription.ack(events)
        taken += [event.id for event in events]
    client.unsubscribe(subscription)
    return taken


def test_delayed_events_survive_kills_and_are_delivered_once_and_not_early(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        subscribe(broker)
        for kill in range(3):
            with SyncClient(broker.address) as client:
                delays = [f"{n * 40}ms" if n % 2 else UNSET for n in range(100)]
                client.publish_many(
                    "t",
                    (Event(id=f"{kill}-{n}", msg=n, priority=n % 3, delay=delay) for n, delay in enumerate(delays)),
                )
            broker.kill()
            broker.start()
        with SyncClient(broker.address) as client:
            assert figures(client)["pending"] == 300
            taken = take_all(client, 100)
            broker.kill()
            broker.start()
        with SyncClient(broker.address) as client:
            taken += take_all(client, 300 - len(taken))
            assert len(set(taken)) == len(taken) == 300
            until(lambda: figures(client)["pending"] == 0)
            assert client.stats()["topics"]["t"]["scheduled"] == 0


def test_a_long_delay_outlives_a_kill_and_an_orderly_stop(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        subscribe(broker)
        assert ask(broker, 'pub t delay=1h {"id":"later","msg":1}', 'pub t {"id":"now","msg":2}')[1].startswith("+OK")
        with SyncClient(broker.address) as client:
            assert take_all(client, 1) == ["now"]
        for stop in (broker.kill, broker.terminate, broker.kill):
            stop()
            broker.start()
            (reply,) = ask(broker, "explain t @0 as=s")
            report = json.loads(reply.partition("@0 ")[2])
            assert (report["state"], report["because"]) == ("delayed", "it is not due")
            assert 3_500_000 < report["for_ms"] <= 3_600_000
            with SyncClient(broker.address) as client:
                assert [figures(client)[name] for name in ("pending", "delayed", "in_flight")] == [1, 1, 0]
            assert ask(broker, "unsettled t as=s") == ['+OK unsettled t {"offsets":[[0,0]],"next":null}']


def test_an_event_that_became_due_while_the_broker_was_down_is_delivered_at_the_start(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        subscribe(broker)
        ask(broker, 'pub t delay=300ms {"id":"a","msg":1}', 'pub t delay=300ms expires=400ms {"id":"b","msg":1}')
        broker.kill()
        due = time.time() + 0.5
        until(lambda: time.time() > due)
        broker.start()
        with SyncClient(broker.address) as client:
            assert take_all(client, 1) == ["a"]
            until(lambda: figures(client)["expired"] == 1)
            assert figures(client)["dead"] == figures(client)["pending"] == 0
            assert client.stats()["expired"] == 1
        assert '"state":"expired"' in ask(broker, "explain t @1 as=s")[0]


def test_a_backup_keeps_the_due_times(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        subscribe(broker)
        ask(broker, 'pub t delay=1h {"id":"later","msg":1}', 'pub t expires=1h {"id":"soon","msg":1}')
        with SyncClient(broker.address) as client:
            assert take_all(client, 1) == ["soon"]
        assert main(["backup", str(tmp_path / "copy"), "--broker", broker.address]) == 0
    assert main(["restore", str(tmp_path / "copy"), "--data-dir", str(tmp_path / "restored")]) == 0
    with BrokerProcess(tmp_path / "restored") as broker, SyncClient(broker.address) as client:
        assert [figures(client)[name] for name in ("pending", "delayed", "in_flight")] == [1, 1, 0]
        assert client.stats()["topics"]["t"]["scheduled"] == 1
        due, expires = client.read("t", 0).events
        assert isinstance(due.due, int)
        assert isinstance(expires.expires, int)


def test_a_typed_session_of_wrong_times_changes_nothing(tmp_path: Path) -> None:
    event = '{"id":"1","msg":1}'
    with BrokerProcess(tmp_path / "broker") as broker:
        wrong = [
            *(f"pub t {option} {event}" for option in ("delay=-1", "delay=1e99", "at=garbage", "expires=0", "at=")),
            *(f"pub t delay=2m {option} {event}" for option in ("expires=1m", "at=2026-01-01", "delay=2m", "soon")),
            *(f'pub t {{"id":"1","msg":1,{member}}}' for member in ('"due":-1', '"due":1e99', '"expires":[]')),
            f"pub t delay={'9' * 100_000}s {event}",
            f"pub t {'delay=1s ' * 10_000}{event}",
        ]
        replies = ask(broker, *wrong, "ping")
        assert replies.pop() == "+PONG"
        assert {reply.split()[1] for reply in replies} <= {"bad_arguments", "bad_event", "bad_json"}
        assert all(reply.startswith("-ERR ") and len(reply) < 400 for reply in replies), replies
        with SyncClient(broker.address) as client:
            assert [info.next for info in client.topics() if info.topic == "t"] in ([], [0])


def test_a_refused_time_stops_the_producer_until_it_sends_the_event_again(tmp_path: Path) -> None:
    numbered = '{{"id":"{0}","msg":1,"producer":"p","sequence":{0}}}'
    with BrokerProcess(tmp_path / "broker") as broker:
        replies = ask(
            broker,
            f"pub t {numbered.format(1)}",
            f"pub t delay=2m expires=1m {numbered.format(2)}",
            f"pub t {numbered.format(3)}",
            f"pub t delay=1m expires=2m {numbered.format(2)}",
            f"pub t {numbered.format(3)}",
            f"pub t delay=1m {numbered.format(2)}",
        )
        assert [reply.split()[1] for reply in replies] == ["pub", "bad_event", "out_of_sequence", "pub", "pub", "dup"]


def test_a_held_message_is_delayed_from_the_moment_it_was_held(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        assert ask(broker, "hello w", 'pub2 t delay=1h {"id":"h","msg":1}')[1] == "+REC t h"
        broker.kill()
        broker.start()
        assert ask(broker, "hello w", "pubrel t h")[1] == "+COMP t h 0 synced"
        with SyncClient(broker.address) as client:
            (event,) = client.read("t", 0).events
            assert isinstance(event.due, int)
            assert event.due < event.timestamp + 3_600_000
            assert client.stats()["topics"]["t"]["scheduled"] == 1


@pytest.mark.parametrize("segment_bytes", ["2KiB", "64MiB"])
def test_retention_and_purge_forget_delayed_events(tmp_path: Path, segment_bytes: str) -> None:
    with BrokerProcess(tmp_path / "broker", "--segment-bytes", segment_bytes) as broker:
        subscribe(broker)
        with SyncClient(broker.address) as client:
            client.publish_many("t", (Event(id=f"{n}", msg="x" * 100, delay="1h") for n in range(200)))
            # Events that are not due are not settled, so they stay.
            assert client.command("retain t settled=yes").startswith("+OK retain t ")
            assert client.purge("t", 150) == 150
            stats = client.stats()["topics"]["t"]
            assert (stats["scheduled"], stats["subscriptions"]["s"]["pending"]) == (50, 50)
            assert client.read("t", "earliest").events[0].id == "150"
        broker.kill()
        broker.start()
        with SyncClient(broker.address) as client:
            assert client.stats()["topics"]["t"]["scheduled"] == 50
            client.purge("t")
            assert client.stats()["topics"]["t"]["scheduled"] == 0
            assert figures(client)["pending"] == 0
