"""The gateway in a real broker: one source, many clients, with restarts and kills in between."""

import json
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path

import pytest

from tests.broker.gateways.event_source.maze import Client, Crowd, Gateway, expected, random_lines, shuffled
from tests.support.processes import BrokerProcess
from tests.support.recordings import invented, recorded
from tests.support.waiting import until
from tweetwire import Event, Refusal, SyncClient

COUNT = int(os.environ.get("TWEETWIRE_TEST_SOURCE_EVENTS", "20000"))
CLIENTS = 1000 if COUNT > 100_000 else 100


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("shared") / "broker") as process:
        yield process


@pytest.fixture
def gateway(shared_gateway: Gateway) -> Gateway:
    """A gateway without the sources and clients of earlier tests. Its counters and topics continue those of earlier tests."""
    shared_gateway.settle()
    return shared_gateway


@pytest.fixture
def fresh_gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "broker") as process:
        yield process


def received(clients: list[Client]) -> dict[str, list[str]]:
    """Read from all clients in parallel until the gateway closes them, since a client that does not read delays the others."""
    found: dict[str, list[str]] = {}
    threads = [threading.Thread(target=lambda one=one: found.update({one.id: one.rest()})) for one in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.timeout(1200)
def test_each_client_gets_exactly_its_lines_in_sequence(fresh_gateway: Gateway) -> None:
    ids = [str(number) for number in range(1, CLIENTS + 1)]
    lines = random_lines(COUNT, CLIENTS)
    mixed = shuffled(lines, 1000)
    with fresh_gateway.clients(*ids) as clients:
        crowd = Crowd(clients)

        def send() -> None:
            with fresh_gateway.source() as source:
                for first in range(0, COUNT, 10_000):
                    source.send(mixed[first : first + 10_000])

        sender = threading.Thread(target=send)
        sender.start()
        digests = crowd.read()
        sender.join()
    wanted = {id_: blake2b("".join(f"{line}\n" for line in of).encode()) for id_, of in expected(lines, ids).items()}
    assert digests == {id_: digest.hexdigest() for id_, digest in wanted.items()}
    stats = fresh_gateway.stats()
    assert (stats["event_source_events"], stats["event_source_held"]) == (COUNT + 1, 0)
    assert (stats["event_source_given_up"], stats["event_source_repeated"]) == (0, 0)


@pytest.mark.parametrize(
    "path", [*invented("event-source/arrival-order.txt"), *recorded("event-source/arrival-order-100000.txt")]
)
def test_events_that_arrive_out_of_order_are_served_in_sequence(gateway: Gateway, path: Path) -> None:
    order = [int(number) for number in path.read_text().split(",")]
    with gateway.clients("7") as (client,):
        with gateway.source() as source:
            source.send([f"{number}|P|1|7" for number in order], end="\r\n")
        assert client.rest() == [f"{number}|P|1|7\r" for number in range(1, len(order) + 1)]
    assert gateway.count("given_up") == 0


def test_lines_keep_the_line_end_that_they_arrived_with(gateway: Gateway) -> None:
    with gateway.clients("1") as (client,):
        with gateway.source() as source:
            source.send(["2|B"], end="\r\n")
            source.send(["1|B", "3|B"], end="\n")
        assert client.rest() == ["1|B", "2|B\r", "3|B"]
    assert gateway.stored() == ["1|B", "2|B\r", "3|B", None]


def test_a_line_is_routed_as_soon_as_its_turn_has_come(gateway: Gateway) -> None:
    with gateway.clients("1") as (client,), gateway.source() as source:
        source.send(["3|B", "1|B"])
        assert client.lines(1) == ["1|B"]
        assert gateway.stats()["event_source_held"] == 1
        source.send(["2|B"])
        assert client.lines(2) == ["2|B", "3|B"]
        assert source.next_due() == 4


def test_a_line_that_cannot_be_parsed_is_kept_and_not_fatal(gateway: Gateway) -> None:
    with gateway.clients("1") as (client,):
        with gateway.source() as source:
            source.send(["1|B", "nonsense", "2|F|1", "x" * 10_000, "", "2|B", "3|\xe9"])
            source.send(["3|B"], end="")
        assert client.rest() == ["1|B", "2|B"]
    assert gateway.count("rejected") == 5
    until(lambda: len(gateway.stored("rejected_lines")) == 5)
    rejected = gateway.stored("rejected_lines")
    assert [one["line"][:8] for one in rejected] == ["nonsense", "2|F|1", "x" * 8, "3|\xe9", "3|B"]
    assert {(one["code"], one["client"]) for one in rejected} == {("bad_event", "event-source")}


def test_a_repeated_sequence_is_left_out(gateway: Gateway) -> None:
    with gateway.clients("1") as (client,):
        with gateway.source() as source:
            source.send(["1|B", "3|B", "3|P|1|1", "1|B", "2|B", "2|B"])
        assert client.rest() == ["1|B", "2|B", "3|B"]
    assert gateway.count("repeated") == 3


def test_when_the_source_ends_held_events_are_sent_in_order_and_the_next_source_begins_at_1(gateway: Gateway) -> None:
    for _ in range(2):
        with gateway.clients("1") as (client,):
            with gateway.source() as source:
                source.send(["5|B", "1|B", "3|P|2|1"])
            assert client.rest() == ["1|B", "3|P|2|1", "5|B"]
    assert gateway.count("given_up") == 4


def test_sequences_can_continue_from_source_to_source(tmp_path: Path) -> None:
    with Gateway(tmp_path / "broker", "--event-source-goes-on") as gateway:
        for lines in (["2|B", "1|B"], ["4|B", "3|B", "2|B"]):
            with gateway.clients("1") as (client,):
                with gateway.source() as source:
                    source.send(lines)
                assert client.rest() == sorted(line for line in lines if line != "2|B" or lines[-1] != "2|B")
            gateway.terminate()
            gateway.start()


def test_the_next_source_is_served_when_the_previous_one_has_ended(gateway: Gateway) -> None:
    with gateway.clients("1") as (client,), gateway.source() as first, gateway.source() as second:
        second.send(["1|P|2|1"])
        first.send(["1|P|1|1"])
        assert client.lines(1) == ["1|P|1|1"]
        first.close()
        assert client.rest() == []
        with gateway.clients("1") as (again,):
            second.close()
            assert again.rest() in (["1|P|2|1"], [])
    until(lambda: gateway.stored() == ["1|P|1|1", None, "1|P|2|1", None])


def test_a_newer_connection_of_one_id_ends_the_older(gateway: Gateway) -> None:
    with gateway.clients("1") as (older,), gateway.source() as source:
        newer = Client(gateway.client_port, "1")
        assert older.rest() == []
        source.send(["1|B"])
        assert newer.lines(1) == ["1|B"]
        newer.close()


def test_a_client_that_does_not_send_its_id_is_closed(gateway: Gateway) -> None:
    for said in ("a b", "", "x" * 200):
        client = Client(gateway.client_port, said)
        assert client.rest() == []
        client.close()


def test_absent_clients_keep_their_followers_also_over_a_restart_and_a_kill(fresh_gateway: Gateway) -> None:
    with fresh_gateway.source() as source:
        source.send(["2|F|3|2", "1|F|1|2", "3|F|5|2", "4|U|5|2", "5|F|1|3"])
    until(lambda: fresh_gateway.stored()[-1:] == [None])
    fresh_gateway.terminate()
    fresh_gateway.start()
    fresh_gateway.kill()
    fresh_gateway.start()
    with fresh_gateway.clients("1", "2", "3", "5") as clients:
        with fresh_gateway.source() as source:
            source.send(["1|S|2", "2|S|3"])
        got = received(clients)
    assert got == {"1": ["1|S|2", "2|S|3"], "2": [], "3": ["1|S|2"], "5": []}


def test_after_a_kill_the_source_continues_and_every_line_is_stored_and_routed_once(fresh_gateway: Gateway) -> None:
    ids = [str(number) for number in range(1, 11)]
    lines = random_lines(6000, 10, seed=3)
    mixed = shuffled(lines, 100)
    got: dict[str, list[list[str]]] = defaultdict(list)
    resumed = []
    due, sent = 1, 0
    for stop in (2000, 4000, len(mixed)):
        with fresh_gateway.clients(*ids) as clients, fresh_gateway.source() as source:
            assert source.next_due() == due
            source.send([line for line in mixed[:sent] if int(line.partition("|")[0]) >= due])
            source.send(mixed[sent:stop])
            sent = stop
            if stop < len(mixed):
                source.wait_until_stored(stop - 500)
                fresh_gateway.kill()
            else:
                source.close()
            for id_, lines_of in received(clients).items():
                got[id_].append(lines_of)
        if stop < len(mixed):
            fresh_gateway.start()
            with fresh_gateway.source() as source:
                due = source.next_due()
                source.reset()
            resumed.append(due)
    assert fresh_gateway.stored() == [*lines, None]
    # Of the lines stored before a kill, each client received a prefix; after the last kill, it received all lines.
    follows: dict[str, set[str]] = defaultdict(set)
    bounds = [0, *(due - 1 for due in resumed), len(lines)]
    for part, (first, last) in enumerate(pairwise(bounds)):
        wanted = expected(lines[first:last], ids, follows)
        for id_ in ids:
            some = got[id_][part]
            assert some == wanted[id_][: len(some)]
            assert part < 2 or some == wanted[id_]


def test_an_inbox_keeps_lines_until_its_client_connects(tmp_path: Path) -> None:
    with Gateway(tmp_path / "broker", "--event-source-inbox") as gateway:
        with gateway.clients("2") as (present,):
            with gateway.source() as source:
                source.send(["1|F|1|2", "2|P|2|1", "3|B", "4|S|2", "5|P|1|2"], end="\r\n")
            assert present.rest() == ["1|F|1|2\r", "3|B\r", "5|P|1|2\r"]
        gateway.terminate()
        gateway.start()
        with gateway.clients("1") as (late,):
            assert late.lines(2) == ["2|P|2|1\r", "4|S|2\r"]
            with gateway.source() as source:
                source.send(["1|P|2|1", "2|S|2"])
            assert late.rest() == ["1|P|2|1", "2|S|2"]
        assert gateway.stored("inbox.1") == ["2|P|2|1\r", "4|S|2\r"]
        with gateway.clients("1") as (again,):
            with gateway.source() as source:
                source.send(["1|B"])
            assert again.rest() == ["1|B"]


def test_with_inboxes_kills_lose_no_line_and_repeat_only_the_newest(tmp_path: Path) -> None:
    ids = [str(number) for number in range(1, 9)]
    lines = random_lines(3000, 8, seed=4, weights=(30, 10, 0, 33, 25))
    got: dict[str, list[str]] = defaultdict(list)
    with Gateway(tmp_path / "broker", "--event-source-inbox") as gateway:
        due, sent = 1, 0
        for stop in (1000, 2000, len(lines)):
            # Half of the clients connect only in the middle of the run.
            with gateway.clients(*ids[::2]) as clients, gateway.source() as source:
                source.send(lines[due - 1 : sent])
                source.send(lines[sent:stop])
                sent = stop
                source.wait_until_stored(stop - 300)
                with gateway.clients(*ids[1::2], known=len(ids)) as others:
                    source.wait_until_stored(stop - 100)
                    if stop < len(lines):
                        gateway.kill()
                    else:
                        source.close()
                    for id_, some in received([*clients, *others]).items():
                        got[id_] += some
            if stop < len(lines):
                gateway.start()
                with gateway.source() as source:
                    due = source.next_due()
                    source.reset()
        assert gateway.stored() == [*lines, None]
        # Lines in the socket of a vanished client would be lost. Here every client read to the end, so no line is missing.
        wanted = expected(lines, ids)
        for id_ in ids:
            assert set(got[id_]) == set(wanted[id_])
            assert list(dict.fromkeys(got[id_])) == wanted[id_]


def test_above_the_limit_of_held_events_the_source_is_slowed_and_nothing_is_lost(tmp_path: Path) -> None:
    with Gateway(tmp_path / "broker", "--hold-max", "50") as gateway, gateway.clients("1") as (client,):
        with gateway.source() as source:
            source.send([f"{number}|P|1|1" for number in range(600, 0, -1)])
        assert client.rest() == [f"{number}|P|1|1" for number in range(1, 601)]
        assert gateway.count("given_up") == 0


def test_a_client_that_does_not_read_is_cut_off_and_the_others_get_everything(tmp_path: Path) -> None:
    deaf = "d" * 64
    # Send more than the system's buffers between gateway and client hold.
    lines = [f"{number}|P|{deaf}|{deaf if number % 1000 else 'reader'}" for number in range(1, 80_001)]
    with Gateway(tmp_path / "broker", "--stalled-after", "1s") as gateway, gateway.clients(deaf, "reader") as clients:

        def send() -> None:
            with gateway.source() as source:
                source.send(lines)

        sender = threading.Thread(target=send)
        sender.start()
        assert clients[1].rest() == lines[999::1000]
        sender.join()
        assert gateway.count("cut_off") == 1


def test_a_client_cannot_write_the_sources_topic(gateway: Gateway) -> None:
    with SyncClient(gateway.address) as client, pytest.raises(Refusal, match="forbidden"):
        client.publish_many("event_source", [Event(id=str(number), msg=number) for number in range(3)])
    with SyncClient(gateway.address) as client:
        client.publish("other", Event(id="1", msg=1))


def test_a_port_that_is_taken_is_reported_in_one_sentence(gateway: Gateway, tmp_path: Path) -> None:
    second = BrokerProcess(tmp_path / "second", "--event-source", f"--event-source-client-port={gateway.client_port}")
    second.launch()
    assert second.wait() == 2
    assert "--event-source-client-port" in second.log().splitlines()[-1]


def test_stored_lines_can_be_subscribed_to_like_any_topic(gateway: Gateway) -> None:
    with gateway.source() as source:
        source.send(["2|S|1", "1|F|2|1"])
    until(lambda: len(gateway.stored()) == 3)
    with SyncClient(gateway.address) as client:
        lines, _ = client.read_lines("event_source", gateway.began_at)
    assert [(event["id"], event["msg"]) for event in map(json.loads, lines)][-3:] == [
        ("1", "1|F|2|1"),
        ("2", "2|S|1"),
        ("end", None),
    ]
