"""The program on a real broker and a real Redis: both directions, every kind of opening, and orderly ends."""

import json
import urllib.request
from pathlib import Path

import pytest

from demo.ports import free_port
from tests.bridge.conftest import Start
from tests.bridge.programs import (
    Bridge,
    entries,
    publish,
    verified,
    wait_for_carried,
    wait_for_entries,
)
from tests.support.processes import BrokerProcess
from tests.support.redis_servers import RedisServer, find_server
from tests.support.stored import events_of
from tests.support.waiting import until
from tweetwire import Event, SyncClient

pytestmark = [pytest.mark.stack, pytest.mark.timeout(240)]


def events(count: int, first: int = 0) -> list[Event]:
    return [Event(id=f"e{number}", msg={"n": number}) for number in range(first, first + count)]


def out(server: RedisServer, options: str = "") -> str:
    return f"orders -> {server.url('orders')}{options}"


def offsets(server: RedisServer) -> list[int]:
    return [int(entry["ce_offset"]) for entry in entries(server, "orders")]


def mark_of(broker: BrokerProcess, topic: str = "orders") -> int:
    with SyncClient(broker.address, name="test") as client:
        marks = client.marks(topic)
        return marks[0].offset if marks else -1


def test_a_topic_goes_out_and_comes_in_elsewhere_with_all_its_members(
    tmp_path: Path, broker: BrokerProcess, server: RedisServer, start: Start
) -> None:
    sent = [
        Event(id="a", msg={"π": [1, None]}, key="k", priority=9, parent="p", headers={"trace": "t"}),
        Event(id="a", msg="again"),
        Event(id="ü b", msg=None),
    ]
    publish(broker.address, "orders", sent)
    start("--out", out(server))
    with BrokerProcess(tmp_path / "second") as second:
        route = f"{server.url('orders')} -> taken"
        with Bridge(tmp_path / "in.log", second.address, "--in", route) as inward:
            taken = wait_for_carried(second.address, "taken", 3)
            assert [(one.id, one.key, one.priority, one.parent) for one in taken] == [
                (one.id, one.key, one.priority, one.parent) for one in sent
            ]
            assert [one.decode() for one in taken] == [one.msg for one in sent]
            assert isinstance(taken[0].headers, dict)
            assert taken[0].headers["trace"] == "t"
            assert "3 compared" in verified(broker.address, out(server))
            assert "3 compared" in verified(second.address, route)
            assert inward.terminate() == 0


def test_the_mark_follows_what_redis_has(broker: BrokerProcess, server: RedisServer, start: Start) -> None:
    publish(broker.address, "orders", events(2500))
    bridge = start("--out", out(server))
    assert len(wait_for_entries(server, "orders", 2500)) == 2500
    until(lambda: mark_of(broker) == 2500)
    publish(broker.address, "orders", events(10, 2500))
    wait_for_entries(server, "orders", 2510)
    assert bridge.terminate() == 0
    assert mark_of(broker) == 2510
    assert offsets(server) == list(range(2510))


def test_latest_sends_only_what_comes_later(broker: BrokerProcess, server: RedisServer, start: Start) -> None:
    publish(broker.address, "orders", events(5))
    bridge = start("--out", out(server, "?begin=latest"))
    until(lambda: mark_of(broker) == 5)
    # A crash before anything was sent keeps the beginning.
    bridge.kill()
    publish(broker.address, "orders", events(3, 5))
    bridge.start()
    wait_for_entries(server, "orders", 3)
    assert offsets(server) == [5, 6, 7]
    assert "3 compared" in verified(broker.address, out(server))


def test_it_waits_for_each_missing_part_with_one_warning(tmp_path: Path) -> None:
    server = RedisServer(find_server("redis"), tmp_path / "redis")
    broker = BrokerProcess(tmp_path / "broker")
    broker.start()
    broker.kill()
    bridge = Bridge(tmp_path / "log", f"127.0.0.1:{broker.port}", "--out", out(server))
    with broker, server:
        broker.kill()
        server.kill()
        bridge.launch()
        try:
            until(lambda: bridge.logged("broker unreachable, retrying"))
            broker.start()
            until(lambda: bridge.said("unknown_topic"))
            publish(f"127.0.0.1:{broker.port}", "orders", events(2))
            until(lambda: bridge.logged("engine unreachable or refusing, retrying"))
            server.start()
            wait_for_entries(server, "orders", 2)
            assert len(bridge.logged("broker unreachable, retrying")) == 1
            assert len([one for one in bridge.logged() if "unknown_topic" in one.get("reason", "")]) == 1
            assert bridge.terminate() == 0
        finally:
            bridge.kill()


def test_a_stop_while_the_broker_is_missing_is_orderly(tmp_path: Path) -> None:
    bridge = Bridge(tmp_path / "log", f"127.0.0.1:{free_port()}", "--out", "orders -> redis://127.0.0.1:1/s")
    bridge.launch()
    try:
        until(lambda: bridge.logged("broker unreachable, retrying"))
        assert bridge.terminate() == 0
    finally:
        bridge.kill()


def test_a_deleted_stream_ends_the_program_with_one_sentence_until_the_user_chooses(
    broker: BrokerProcess, server: RedisServer, start: Start
) -> None:
    publish(broker.address, "orders", events(5))
    bridge = start("--out", out(server))
    wait_for_entries(server, "orders", 5)
    until(lambda: mark_of(broker) == 5)
    with server.client() as client:
        client.delete("orders")
    publish(broker.address, "orders", events(1, 5))
    assert bridge.wait() == 2
    assert bridge.said("give on_lost=resend to send them again, or on_lost=skip to continue without them")
    skipping = start("--out", out(server, "?on_lost=skip"))
    wait_for_entries(server, "orders", 1)
    assert offsets(server) == [5]
    assert skipping.logged("the central copy was lost")
    assert skipping.terminate() == 0
    with server.client() as client:
        client.flushall()
    publish(broker.address, "orders", events(1, 6))
    start("--out", out(server, "?on_lost=resend"))
    wait_for_entries(server, "orders", 2)
    assert offsets(server) == [5, 6]


def test_entries_that_redis_has_lost_are_sent_again(broker: BrokerProcess, server: RedisServer, start: Start) -> None:
    publish(broker.address, "orders", events(5))
    bridge = start("--out", out(server))
    wait_for_entries(server, "orders", 5)
    with server.client() as client:
        before = client.dump("orders"), client.hgetall("{orders}:tweetwire")
        publish(broker.address, "orders", events(5, 5))
        wait_for_entries(server, "orders", 10)
        until(lambda: mark_of(broker) == 10)
        assert bridge.terminate() == 0
        # The state of a replica that had half of the entries, and becomes the primary.
        client.restore("orders", 0, before[0], replace=True)
        client.hset("{orders}:tweetwire", mapping=before[1])
    bridge.start()
    wait_for_entries(server, "orders", 10)
    assert offsets(server) == list(range(10))
    (warning,) = bridge.logged("the engine lost events, sending them again")
    assert (warning["first"], warning["last"]) == (5, 9)
    verified(broker.address, out(server))


def test_events_that_retention_removed_unsent_are_a_gap_record(
    broker: BrokerProcess, server: RedisServer, start: Start
) -> None:
    publish(broker.address, "orders", events(5))
    bridge = start("--out", out(server))
    wait_for_entries(server, "orders", 5)
    assert bridge.terminate() == 0
    publish(broker.address, "orders", events(10, 5))
    with SyncClient(broker.address, name="test") as client:
        client.purge("orders", 12)
    failing = start("--out", out(server, "?on_gap=fail"))
    assert failing.wait() == 2
    assert failing.said("retention removed the events 5 to 11 before they were sent")
    start("--out", out(server))
    found = wait_for_entries(server, "orders", 9)
    assert [entry["ce_type"] for entry in found] == [
        *["tweetwire.event"] * 5,
        "tweetwire.gap",
        *["tweetwire.event"] * 3,
    ]
    gap = json.loads(found[5]["data"])["gap"]
    assert (gap["first"], gap["last"], found[5]["ce_offset"]) == (5, 11, "11")
    assert "7 in reported gaps" in verified(broker.address, out(server))


def test_a_position_that_the_topic_never_had_is_refused_until_a_new_identity(
    broker: BrokerProcess, server: RedisServer, start: Start
) -> None:
    publish(broker.address, "orders", events(5))
    bridge = start("--out", out(server))
    wait_for_entries(server, "orders", 5)
    until(lambda: mark_of(broker) == 5)
    assert bridge.terminate() == 0
    with server.client() as client:
        (field,) = [name for name in client.hkeys("{orders}:tweetwire") if b"/orders" in name]
        kept = client.hget("{orders}:tweetwire", field)
        client.hset("{orders}:tweetwire", field, kept.replace(b"4 ", b"99 ", 1))
    refused = start("--out", out(server))
    assert refused.wait() == 2
    assert refused.said("the engine has our event 99, and the topic ends before 5")
    renamed = start("--out", out(server), "--new-identity")
    found = wait_for_entries(server, "orders", 10)
    assert len({entry["ce_source"] for entry in found}) == 2
    until(lambda: mark_of(broker) == 5)
    assert renamed.terminate() == 0
    # The flag may stay: the position is now that of the new identity.
    again = start("--out", out(server), "--new-identity")
    publish(broker.address, "orders", events(1, 5))
    assert offsets_after(server, 11) == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5]
    assert again.terminate() == 0
    verified(broker.address, out(server))


def offsets_after(server: RedisServer, count: int) -> list[int]:
    wait_for_entries(server, "orders", count)
    return offsets(server)


def test_two_bridges_on_one_route_carry_each_event_once(
    broker: BrokerProcess, server: RedisServer, start: Start
) -> None:
    for _ in range(2):
        start("--out", out(server, "?batch=50"))
        start("--in", f"{server.url('central')}?batch=50 -> taken")
    with server.client() as client:
        for first in range(0, 3000, 100):
            publish(broker.address, "orders", events(100, first))
            pipeline = client.pipeline()
            for number in range(first, first + 100):
                pipeline.xadd("central", {"data": str(number)})
            pipeline.execute()
    wait_for_entries(server, "orders", 3000)
    assert offsets(server) == list(range(3000))
    found = wait_for_carried(broker.address, "taken", 3000)
    assert [one.decode() for one in found] == list(range(3000))
    verified(broker.address, out(server), f"{server.url('central')} -> taken")


def test_an_event_that_the_broker_refuses_forever_is_kept_and_passed(
    broker: BrokerProcess, server: RedisServer, start: Start
) -> None:
    with SyncClient(broker.address, name="test") as client:
        client.create("taken")
        client.command('schema taken {"type":"integer"}')
    with server.client() as client:
        for value in ("1", '"no"', "2", "[]", '{"x":1e999}', "3"):
            client.xadd("central", {"data": value})
    route = f"{server.url('central')} -> taken"
    bridge = start("--in", route)
    assert [one.decode() for one in wait_for_carried(broker.address, "taken", 3)] == [1, 2, 3]
    rejected = [one.decode() for one in events_of(broker.address, "rejected_bridged")]
    assert [one["reason"].split()[0] for one in rejected] == ["schema", "schema", "bad_event"]
    assert bridge.terminate() == 0
    bridge.start()
    with server.client() as client:
        client.xadd("central", {"data": "4"})
    assert [one.decode() for one in wait_for_carried(broker.address, "taken", 4)] == [1, 2, 3, 4]
    assert len(events_of(broker.address, "rejected_bridged")) == 3
    verified(broker.address, route)


def test_metrics_show_each_route(broker: BrokerProcess, server: RedisServer, tmp_path: Path) -> None:
    publish(broker.address, "orders", events(5))
    port = free_port()
    with Bridge(tmp_path / "log", broker.address, "--out", out(server), "--metrics-port", str(port)):
        wait_for_entries(server, "orders", 5)
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
        label = f'{{route="orders -> {server.url("orders")}",topic="orders"}}'
        assert f"tweetwire_bridge_carried_total{label} 5.0" in text
        assert f"tweetwire_bridge_connected{label} 1.0" in text


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ((), "there is no route; give one with --out or --in, or a file with --routes"),
        (("--out", "orders"), "--out: 'orders' is not a route"),
        (("--in", "x://h/s -> t"), "--in: 'x://h/s': x is not an engine of the bridge"),
        (("--routes", "none.toml"), "cannot read none.toml"),
        (("--out", "a -> redis://h/s", "--out", "a -> redis://i/s"), "are both named redis.s"),
    ],
)
def test_wrong_flags_end_it_with_one_sentence(flags: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    bridge = Bridge(tmp_path / "log", "127.0.0.1:1", *flags)
    bridge.launch()
    assert bridge.wait() == 2
    assert sentence in bridge.log()
