"""Commands for everyday work and administration on a real broker: their output, and their effect."""

import io
import json
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from tests.support.commands import PATIENCE_S, Cli
from tests.support.processes import BrokerProcess
from tests.support.terminal import ProgramTerminal
from tests.support.waiting import until
from tweetwire import Event, SyncClient
from tweetwire.cli.top_picture import SubscriptionRow, TopicRow, picture, rows_between


class Terminal(ProgramTerminal):
    """A command on a terminal of 40 lines."""

    def __init__(self, *words: str, columns: int = 100) -> None:
        super().__init__("tweetwire", *words, COLUMNS=str(columns), LINES="40")


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name for each test and each of its parameters; a short one, so that tables do not break it."""
    return f"t{zlib.crc32(request.node.name.encode()):08x}"


@pytest.fixture
def cli(shared_broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(shared_broker, capsys)


@pytest.fixture
def client(shared_broker: BrokerProcess) -> Iterator[SyncClient]:
    with SyncClient(shared_broker.address, name="test", reconnect_s=0) as client:
        yield client


def publish(client: SyncClient, topic: str, count: int) -> None:
    client.publish_many(topic, [Event(id=f"e{n}", msg={"n": n}, priority=n % 3) for n in range(count)])


def test_read_shows_the_events_from_a_place_on_and_ends(cli: Cli, client: SyncClient, topic: str) -> None:
    publish(client, topic, 30)
    assert [json.loads(line)["offset"] for line in cli("read", topic, "@25", "--json").splitlines()] == [*range(25, 30)]
    assert [json.loads(line)["offset"] for line in cli("read", topic, "5", "-n", "2", "--json").splitlines()] == [5, 6]
    assert len(cli("read", topic, "10m").splitlines()) == 10
    assert cli("read", topic, "earliest", "--count", "1").startswith("@0 20")
    assert cli("read", topic, "latest") == ""
    cli("read", topic, "soon", status=2)
    assert cli.errors.startswith("tweetwire read: PLACE: 'soon' is not a place; write earliest, latest, @1042")


def test_the_retention_of_a_topic_is_set_and_shown(cli: Cli, client: SyncClient, topic: str) -> None:
    publish(client, topic, 1)
    assert cli("retain", topic) == f"{topic}: --age none --bytes none --settled no --at-most none\n"
    cli("retain", topic, "--age", "7d", "--at-most", "20GiB")
    expected = {"topic": topic, "age": "7d", "bytes": "none", "settled": "no", "at_most": "20GiB"}
    assert cli.json("retain", topic) == expected
    assert cli.json("retain", topic, "--age", "none", "--settled", "yes") == expected | {
        "age": "none",
        "settled": "yes",
    }
    cli("retain", topic, "--age", "7 days", status=2)
    assert cli.errors.startswith("tweetwire retain: --age: '7 days' is not a duration")


def test_a_backlog_is_shown_by_priority_and_consumer(cli: Cli, client: SyncClient, topic: str) -> None:
    publish(client, topic, 30)
    client.subscribe(topic, as_="billing", from_="earliest", prefetch=5)
    words = " ".join(cli("backlog", topic, "--as", "billing").split())
    assert f"billing of {topic}: the oldest unsettled event is @0" in words
    assert "waiting priority events" in words
    assert re.search(r" 2 5 1 10 0 10 ", words), words
    assert re.search(r"test 127\.0\.0\.1:\d+ 5 5$", words), words
    found = cli.json("backlog", topic, "--as", "billing")
    assert (found["by_priority"], found["oldest"]) == ({"0": 10, "1": 10, "2": 5}, 0)


def test_clients_are_listed_with_their_subscriptions(cli: Cli, client: SyncClient, topic: str) -> None:
    publish(client, topic, 1)
    client.subscribe(topic, as_="billing")
    words = cli("clients").split()
    assert f"{topic}/billing" in words
    mine = [one for one in cli.json("clients") if one["client"] == "test"]
    assert mine[-1]["subscriptions"] == [[topic, "billing"]]
    assert len(cli.json("clients", "--limit", "1")) == 1


def test_a_subscription_ends_only_if_a_person_confirms_it(cli: Cli, client: SyncClient, topic: str) -> None:
    publish(client, topic, 3)
    client.unsubscribe(client.subscribe(topic, as_="billing", from_="earliest"))
    cli("unsub", topic, "--as", "billing", status=2)
    assert "end it for all consumers with --end" in cli.errors
    cli("unsub", topic, "--as", "billing", "--end", status=2)
    assert cli.errors.endswith("forget its pending events? Pass --yes, because stdin is not a terminal\n")
    assert [one["subscription"] for one in cli.json("subscriptions", "--topic", topic)] == ["billing"]
    assert cli("unsub", topic, "--as", "billing", "--end", "--yes") == f"billing of {topic} has ended\n"
    assert cli.json("subscriptions", "--topic", topic) == []


@pytest.mark.parametrize(("answer", "status"), [(b"y\r", 0), (b"yes\r", 0), (b"\r", 2), (b"n\r", 2)])
def test_a_terminal_is_asked_before_something_is_destroyed(
    client: SyncClient, shared_broker: BrokerProcess, topic: str, answer: bytes, status: int
) -> None:
    publish(client, topic, 1)
    client.unsubscribe(client.subscribe(topic, as_="billing", from_="earliest"))
    with Terminal("unsub", topic, "--as", "billing", "--end", "--broker", shared_broker.address) as terminal:
        terminal.until("? [y/N] ")
        terminal.press(answer)
        assert terminal.status() == status
    assert ("nothing was changed" in terminal.written) == (status == 2)
    left = client.stats(topic)["topics"][topic]["subscriptions"]
    assert ("billing" in left) == (status == 2)


def test_a_topic_is_made_purged_and_deleted(cli: Cli, client: SyncClient, topic: str) -> None:
    assert cli("create", topic, "--age", "7d") == f"made {topic}\n"
    assert cli.json("create", topic) == {"topic": topic, "is_new": False}
    assert cli("create", topic) == f"{topic} exists already\n"
    assert cli.json("retain", topic)["age"] == "7d"
    publish(client, topic, 30)
    cli("purge", topic, "--before", "@7", status=2)
    assert cli.errors.startswith(f"tweetwire purge: Delete the events before 7 of {topic} at 127.0.0.1:")
    assert cli("purge", topic, "--before", "@7", "--yes") == f"{topic} now begins at @7\n"
    assert [event.offset for event in client.read(topic, "earliest").events] == [*range(7, 30)]
    assert cli.json("purge", topic, "--before", "1h", "--yes") == {"topic": topic, "earliest": 7}
    cli("drop", topic, "--if-empty", "--yes", status=2)
    assert f"{topic} has 23 events" in cli.errors
    assert cli("purge", topic, "--yes") == f"{topic} now begins at @30\n"
    cli("drop", topic, status=2)
    assert "with all its events and subscriptions? Pass --yes" in cli.errors
    assert cli("drop", topic, "--if-empty", "--yes") == f"deleted {topic}\n"
    assert topic not in {one["topic"] for one in cli.json("topics")}


def test_a_subscription_continues_at_another_place(cli: Cli, client: SyncClient, topic: str) -> None:
    publish(client, topic, 10)
    client.unsubscribe(client.subscribe(topic, as_="billing", from_="latest"))
    assert cli("seek", topic, "--as", "billing", "--to", "@4") == f"billing continues at @4 of {topic}\n"
    (found,) = cli.json("subscriptions", "--topic", topic)
    assert found["pending"] == 6
    for place, offset in (("earliest", 0), ("latest", 10), ("1h", 0), ("now", 10)):
        answer = cli.json("seek", topic, "--as", "billing", "--to", place)
        assert answer == {"topic": topic, "subscription": "billing", "offset": offset}


def test_a_paused_subscription_receives_no_events(cli: Cli, client: SyncClient, topic: str) -> None:
    publish(client, topic, 1)
    subscription = client.subscribe(topic, as_="billing")
    said = cli("pause", topic, "--as", "billing")
    assert said == f"billing is paused; to resume it: tweetwire resume {topic} --as billing\n"
    publish(client, topic, 1)
    (found,) = cli.json("subscriptions", "--topic", topic)
    assert (found["paused"], found["in_flight"], found["pending"]) == (True, 0, 1)
    assert "paused" in cli("subscriptions", "--topic", topic)
    assert cli("resume", topic, "--as", "billing") == f"billing receives events of {topic} again\n"
    assert [event.offset for event in next(iter(subscription))] == [1]


def test_dead_events_are_discarded(cli: Cli, client: SyncClient, topic: str) -> None:
    publish(client, topic, 5)
    subscription = client.subscribe(topic, as_="billing", from_="earliest", tries=1, prefetch=5)
    for event in next(iter(subscription)):
        subscription.nack(event, "no stock")
    until(lambda: len(cli.json("dead", "--topic", topic)) == 5)
    words = ("discard", topic, "--as", "billing")
    cli(*words, "@0", "e1", status=2)
    assert f"Discard the dead events @0, e1 of billing in {topic} at" in cli.errors
    assert cli(*words, "@0", "e1", "--yes") == "2 events were discarded\n"
    assert cli(*words, "@2", "--yes") == "1 event was discarded\n"
    assert cli.json(*words, "all", "--yes") == {"topic": topic, "subscription": "billing", "discarded": 2}
    assert cli("dead", "--topic", topic) == "there are no dead letters\n"
    cli(*words, "@99999999999999999999", "--yes", status=2)
    assert cli.errors.count("\n") == 1


def test_dead_letters_are_listed_newest_first_with_their_number(cli: Cli, client: SyncClient, topic: str) -> None:
    publish(client, topic, 5)
    subscription = client.subscribe(topic, as_="billing", from_="earliest", tries=1, prefetch=5)
    for event in sorted(next(iter(subscription)), key=lambda event: -event.offset):
        subscription.nack(event, "no stock")
    until(lambda: len(cli.json("dead", "--topic", topic)) == 5)
    assert [one["offset"] for one in cli.json("dead", "--topic", topic)] == [0, 1, 2, 3, 4]
    assert [one["offset"] for one in cli.json("dead", "--topic", topic, "--limit", "2")] == [0, 1]
    assert cli("dead", "--topic", topic).endswith("\n5 dead letters\n")
    text = cli("dead", "--topic", topic, "--limit", "2")
    assert text.endswith("\n5 dead letters, the newest 2 of them above; show more with --limit\n")


@pytest.mark.parametrize("width", [70, 80, 100, 109])
def test_times_of_dead_letters_are_whole_on_narrow_terminals(
    client: SyncClient, shared_broker: BrokerProcess, topic: str, width: int
) -> None:
    publish(client, topic, 1)
    subscription = client.subscribe(topic, as_="billing", from_="earliest", tries=1)
    subscription.nack(next(iter(subscription))[0], "there is no stock left of this article, and none will come")
    until(lambda: len(json.loads(client.command(f"dead topic={topic}").split(" ", 2)[2])) == 1)
    with Terminal("dead", "--topic", topic, "--broker", shared_broker.address, columns=width) as terminal:
        assert terminal.status() == 0
    assert re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", terminal.shown), terminal.shown


# Tests of the command `top`


def stats(published: int, delivered: int, settled: int, **topics: Any) -> dict[str, Any]:
    figures = {"consumers": 2, "pending": 7, "delayed": 2, "in_flight": 1, "dead": 3, "settled": settled}
    orders = {"next": published, "bytes": 4096, "subscriptions": {"billing": figures}}
    return {"delivered": delivered, "topics": {"orders": orders} | topics}


def test_rates_are_the_differences_of_two_answers() -> None:
    idle = {"next": 5, "bytes": 1, "subscriptions": {}}
    rows = rows_between(stats(100, 50, 10, idle=idle), stats(300, 90, 14, idle=idle), 2.0)
    assert (rows.published, rows.delivered) == (100.0, 20.0)
    assert rows.topics == [TopicRow("orders", 100.0, 300, 4096, 2), TopicRow("idle", 0.0, 5, 1, 0)]
    assert rows.subscriptions == [SubscriptionRow("orders", "billing", 2.0, 8, 1, 2, 3)]


def test_a_new_topic_and_a_restarted_broker_have_no_rate() -> None:
    new = {"next": 500, "bytes": 1, "subscriptions": {}}
    rows = rows_between(stats(100, 50, 10), stats(10, 5, 1, new=new), 1.0)
    assert [row.per_second for row in rows.topics] == [0.0, 0.0]
    assert rows.subscriptions[0].per_second == 0.0
    assert (rows.published, rows.delivered) == (0.0, 0.0)


def test_a_picture_has_no_more_lines_than_the_terminal() -> None:
    topics = {f"t{n}": {"next": n, "bytes": 1, "subscriptions": {}} for n in range(50)}
    rows = rows_between(stats(1, 1, 1, **topics), stats(1, 1, 1, **topics), 1.0)
    console = Console(file=io.StringIO(), width=80, height=24)
    with console.capture() as captured:
        console.print(picture("broker", rows, 24))
    assert len(captured.get().splitlines()) <= 24
    assert "topics (7 of 51)" in captured.get()


def test_top_prints_one_picture_for_scripts(cli: Cli, client: SyncClient, topic: str) -> None:
    publish(client, topic, 30)
    client.subscribe(topic, as_="billing", from_="earliest", prefetch=5)
    words = " ".join(cli("top", "--once", "--interval", "100ms").split())
    assert "events/s published" in words
    assert f"{topic} 0 @30 " in words
    assert f"{topic} billing 0 30 5 1 0" in words
    assert words == " ".join(cli("top", "--interval", "100ms").split()), "stdout is not a terminal"
    cli("top", "--interval", "0s", status=2)
    assert "--interval: '0s' is not between 100ms and 1h" in cli.errors


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_top_draws_rates_until_a_key_ends_it(broker: BrokerProcess, topic: str, key: bytes) -> None:
    with SyncClient(broker.address) as client:
        publish(client, topic, 1)
        with Terminal("top", "--interval", "100ms", "--broker", broker.address) as terminal:
            terminal.until("(q ends)")
            terminal.until(topic)
            publish(client, topic, 2000)
            terminal.until("@2001")
            terminal.press(key)
            assert terminal.status() == 0
    assert "Traceback" not in terminal.written


def test_a_command_of_two_words_that_is_cut_short_lists_the_whole_ones() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tweetwire", "context"], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 2
    assert "context needs another word; write one of: context add, context use" in done.stderr
