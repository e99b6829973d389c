"""The command line on a real broker: the output for people and for programs, and the exit status of each command."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Cli
from tests.support.consumer import Consumer
from tests.support.processes import BrokerProcess
from tweetwire import Client, Event, Refusal, SyncClient
from tweetwire.cli import main
from tweetwire.cli.catalogue import COMMANDS, load_command
from tweetwire.cli.completion import Completion
from tweetwire.cli.connection import CommandConnection
from tweetwire.cli.display import printable
from tweetwire.cli.unsettled import GAP

PATIENCE_S = 60.0
STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _tidy() -> Iterator[None]:
    """End the processes that `start` has started, and restore pytest's own handler of SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.wait()
        for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
            pipe.close()


@pytest.fixture
def cli(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(broker, capsys)


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[SyncClient]:
    with SyncClient(broker.address, name="test", reconnect_s=0) as client:
        yield client


def start(*words: str, **options: Any) -> subprocess.Popen[str]:
    """Start the command line as a process."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-m", "broker", *words], text=True, **(pipes | options))
    STARTED.append(process)
    return process


def publish(client: SyncClient, events: Iterable[Event], topic: str = "tweets") -> None:
    client.publish_many(topic, events)


def numbered(count: int) -> Iterator[Event]:
    return (Event(id=f"e{n}", msg={"n": n}, priority=n % 3) for n in range(count))


# Dead letters, explain and redrive


def test_tables_and_json_show_the_brokers_figures(cli: Cli, client: SyncClient, broker: BrokerProcess) -> None:
    publish(client, numbered(1200))
    with Consumer(
        broker, "hello billing", "sub tweets as=inventory from=earliest prefetch=5 timeout=90s backoff=500ms"
    ):
        stats = client.stats()
        figures = stats["topics"]["tweets"]["subscriptions"]["inventory"]
        row = {"topic": "tweets", "subscription": "inventory", "pattern": None, **figures}
        assert cli.json("topics") == [
            {
                "topic": name,
                **{key: report[key] for key in ("log", "earliest", "next", "bytes")},
                "subscriptions": count,
            }
            for (name, report), count in zip(stats["topics"].items(), (0, 1), strict=True)
        ]
        assert cli.json("subscriptions") == cli.json("subscriptions", "--topic", "tweets") == [row]
        assert cli.json("subscriptions", "--topic", "dead_letters") == []
        assert cli.json("stats")["topics"] == stats["topics"]
        words = cli("subscriptions").split()
        at = words.index("inventory")
        assert words[at : at + 7] == ["inventory", "yes", "1", "1,195", "0", "5", "0"]
        assert "timeout=1m30s" not in words
        assert {"timeout=90s", "tries=5", "backoff=500ms", "max_wait=1m"} <= set(words)
        assert "tweets @0 @1200" in " ".join(cli("topics").split())
        everything = " ".join(cli("stats").split())
        assert "delivered 5" in everything
        assert "tweets 1,200 0 0 @0 @1200" in everything


def test_explain_shows_the_trace_of_the_last_failed_try_line_by_line(
    cli: Cli, client: SyncClient, broker: BrokerProcess
) -> None:
    publish(client, [Event(id="1", msg="x")])
    with Consumer(broker, "hello billing", "sub tweets as=inventory from=earliest timeout=1h") as consumer:
        consumer.type(r'nack tweets 1 {"message":"empty","trace":"Traceback:\n  line 7\n\u001b[1mKeyError"}')
        told = cli("explain", "tweets", "1", "--as", "inventory")
    assert "trace of the last failed try:\n  Traceback:\n    line 7\n  \\x1b[1mKeyError\n" in told


def test_a_dead_event_is_listed_explained_and_redriven_only_to_its_subscription(
    cli: Cli, client: SyncClient, broker: BrokerProcess
) -> None:
    publish(client, [Event(id="1", msg="x"), Event(id="2", msg="y")])
    assert cli("dead") == "there are no dead letters\n"
    with (
        Consumer(broker, "hello billing", "sub tweets as=other from=earliest prefetch=9") as other,
        Consumer(broker, "hello billing", "sub tweets as=inventory from=earliest tries=2 timeout=1h") as consumer,
    ):
        assert "in flight with billing" in cli("explain", "tweets", "1", "--as", "inventory")
        waits = "waits behind 0 others: every consumer has as many in flight as its prefetch allows"
        assert waits in cli("explain", "tweets", "@1", "--as", "inventory")
        consumer.type('nack tweets 1 {"message":"no stock","code":409}', "nack tweets 1", "ack tweets 2")
        deadline = time.monotonic() + PATIENCE_S
        while not (letters := cli.json("dead", "--topic", "tweets", "--as", "inventory")):
            assert time.monotonic() < deadline  # wait until the dead letter is on the disk
        assert [[error.get("message") for error in letter["errors"]] for letter in letters] == [["no stock", None]]
        assert cli.json("dead", "--as", "other") == []
        assert {"@0", "inventory", "billing", "nack"} <= set(cli("dead").split())
        told = cli("explain", "tweets", "1", "--as", "inventory")
        assert "@0 of tweets for inventory: dead, its letter is dead_letters @0" in told
        assert "409" in told
        assert "no stock" in told
        assert ": settled" in cli("explain", "tweets", "2", "--as", "inventory")
        other.type("ack tweets 1 2")
        assert cli.json("redrive", "tweets", "--as", "inventory", "1", "--rate", "50") == {
            "topic": "tweets",
            "subscription": "inventory",
            "redriven": 1,
        }
        deadline = time.monotonic() + PATIENCE_S
        while not (again := consumer.type()):
            assert time.monotonic() < deadline
        assert [(event["id"], event["try"]) for event in again] == [("1", 3)]
        assert other.type() == []
        assert cli("redrive", "tweets", "all", "--as", "inventory") == "0 events are delivered to inventory again\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["tail", "nothing"], "tail: the broker refuses (unknown_topic): there is no topic nothing"),
        (["export", "--topic", "nothing"], "export: the broker refuses (unknown_topic): there is no topic nothing"),
        (
            ["export", "--as", "nobody"],
            "export: the broker refuses (not_subscribed): no topic has a subscription nobody",
        ),
        (
            ["redrive", "dead_letters", "all", "--as", "s"],
            "redrive: the broker refuses (not_subscribed): dead_letters has",
        ),
        (
            ["redrive", "t", "a b", "--as", "s"],
            "redrive: REFS: an id cannot be empty or have spaces here; pass the offset of the event instead: @1042",
        ),
        (["explain", "t t", "@1", "--as", "s"], "explain: TOPIC: 't t' is not a name; use 1-128 of"),
        (["explain", "t", "@1"], "explain: --as: is needed"),
        (["dead", "--limit", "0"], "dead: --limit: '0' is less than 1"),
        (["topics", "--timeout", "5"], "topics: --timeout: '5' is not a duration"),
        (
            ["tail", "dead_letters", "--from", "soon"],
            "tail: --from: 'soon' is not a place; write earliest, latest, @1042",
        ),
        (["stats", "--tls-ca", "no/such/file"], "stats: --tls-ca: cannot read no/such/file: No such file or directory"),
        (["export", "--out", "no/such/folder/x"], "export: cannot write no/such/folder/x: No such file or directory"),
    ],
)
def test_a_refusal_is_reported_in_one_sentence_with_status_2(cli: Cli, words: list[str], sentence: str) -> None:
    assert cli(*words, status=2) == ""
    assert cli.errors.startswith(f"tweetwire {sentence}")
    assert cli.errors.count("\n") == 1


def test_a_missing_broker_is_reported_in_one_sentence_and_status_2_for_every_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("TWEETWIRE_BROKER", address)
    needed = {"tail": ["t"], "explain": ["t", "@1", "--as", "s"], "redrive": ["t", "all", "--as", "s"]}
    needed |= {"chain": ["t", "@1"], "describe": ["t"], "schema": ["t"], "comment": ["t", "x"], "mock": ["t"]}
    needed |= {"forget": ["t", "p"], "pub": ["t", "1"], "sub": ["t"], "backup": ["no/such/folder"]}
    needed |= {"read": ["t", "earliest"], "retain": ["t"], "backlog": ["t", "--as", "s"]}
    needed |= {"unsub": ["t", "--as", "s", "--end", "--yes"], "seek": ["t", "--as", "s", "--to", "latest"]}
    needed |= {"pause": ["t", "--as", "s"], "resume": ["t", "--as", "s"], "create": ["t"], "drop": ["t", "--yes"]}
    needed |= {"request": ["t", "1"], "marks": ["t"], "mark": ["t", "--as", "m", "@1"], "confirm": ["t"]}
    needed |= {"unmark": ["t", "--as", "m"]}
    needed |= {"purge": ["t", "--yes"], "discard": ["t", "all", "--as", "s", "--yes"]}
    for name, entry in COMMANDS.items():
        if "." in entry.module or not issubclass(load_command(name), CommandConnection):
            continue
        assert main([*name.split(), *needed.get(name, ())]) == 2, name
        out, errors = capsys.readouterr()
        expected = f"tweetwire {name}: no broker answers at {address} (Connection refused); start one with"
        assert errors.startswith(expected), errors
        assert (out, errors.count("\n")) == ("", 1)


def test_a_token_from_the_environment_opens_a_guarded_broker(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "broker.users", "boss"], input="b-secret\n", capture_output=True, text=True, check=True
    ).stdout
    users = tmp_path / "users.toml"
    users.write_text("\n".join(made.splitlines()[:3]) + '\npublish = ["*"]\nsubscribe = ["*"]\n')
    with BrokerProcess(tmp_path / "guarded", "--users", str(users)) as guarded:
        words = ("topics", "--json", "--broker", guarded.address, "--name", "boss")
        out, errors = start(*words, env=os.environ | {"TWEETWIRE_TOKEN": "b-secret"}).communicate(timeout=PATIENCE_S)
        assert [topic["topic"] for topic in json.loads(out)] == ["dead_letters"]
        out, errors = start(*words).communicate(timeout=PATIENCE_S)
        assert out == ""
        assert "the broker refuses (unauthenticated)" in errors
        assert "; see --name and TWEETWIRE_TOKEN" in errors


# Tail


def test_tail_shows_stored_events_from_the_given_place(cli: Cli, client: SyncClient) -> None:
    publish(client, numbered(2500))
    stored, _ = client.read_lines("tweets", 0)
    assert cli("tail", "tweets", "--no-follow", "--json").encode().splitlines() == stored
    assert (
        cli("tail", "tweets", "--from", "earliest", "--count", "1700", "--json").encode().splitlines() == stored[:1700]
    )
    assert cli("tail", "tweets", "--from", "2498", "--no-follow", "--json").encode().splitlines() == stored[2498:]
    assert cli("tail", "tweets", "--from", "latest", "--no-follow") == ""
    assert (
        cli("tail", "tweets", "--from", "2000-01-01T00:00:00Z", "--count", "1", "--json").encode().splitlines()
        == stored[:1]
    )
    assert cli("tail", "tweets", "--from", "2999-01-01T00:00:00Z", "--no-follow") == ""
    shown = cli("tail", "tweets", "--from", "1", "--count", "1")
    time_ms = json.loads(stored[1])["timestamp"]
    assert shown.startswith("@1 20")
    assert f".{time_ms % 1000:03}Z p1 e1 " in shown
    assert shown.endswith(' e1 {"n":1}\n')


def test_tail_follows_and_disturbs_no_consumer(client: SyncClient, broker: BrokerProcess) -> None:
    publish(client, numbered(1))
    with Consumer(broker, "hello billing", "sub tweets as=inventory from=latest"):
        before = client.stats()
        tail = start("tail", "tweets", "--from", "earliest", "--broker", broker.address)
        assert tail.stdout is not None
        assert " e0 " in tail.stdout.readline()
        client.publish("tweets", Event(id="later", msg="☂", priority=7, key="k", headers={"a": "b"}))
        line = tail.stdout.readline()
        assert line.endswith(' p7 later "☂" key=k headers={"a":"b"}\n')
        after = client.stats()
        assert after["topics"]["tweets"]["subscriptions"].keys() == {"inventory"}
        assert after["delivered"] - before["delivered"] == 1
        tail.send_signal(signal.SIGINT)
        assert tail.communicate(timeout=PATIENCE_S) == ("", "")
        assert tail.returncode == 0


def test_an_interrupt_that_python_drops_still_ends_tail(client: SyncClient, broker: BrokerProcess) -> None:
    publish(client, numbered(3))

    class Dropping(io.StringIO):
        """Output that drops an interrupt, as a finalizer does."""

        def flush(self) -> None:
            with suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    with redirect_stdout(Dropping()) as shown:
        assert main(["tail", "tweets", "--from", "earliest", "--json", "--broker", broker.address]) == 0
    assert shown.getvalue().count("\n") == 3


@pytest.mark.parametrize(("end", "status"), [("SIGTERM", 0), ("SIGKILL of the broker", 2)])
def test_a_following_tail_ends_in_order(client: SyncClient, broker: BrokerProcess, end: str, status: int) -> None:
    publish(client, numbered(1))
    tail = start("tail", "tweets", "--from", "earliest", "--broker", broker.address)
    assert tail.stdout is not None
    tail.stdout.readline()
    if end == "SIGTERM":
        tail.terminate()
    else:
        broker.kill()
    _, errors = tail.communicate(timeout=PATIENCE_S)
    assert tail.returncode == status
    assert errors.count("\n") == (status != 0)
    assert "Traceback" not in errors


def test_a_reader_that_closes_the_pipe_ends_tail_without_a_message(client: SyncClient, broker: BrokerProcess) -> None:
    publish(client, numbered(20_000))
    tail = start("tail", "tweets", "--no-follow", "--json", "--broker", broker.address)
    assert tail.stdout is not None
    assert tail.stderr is not None
    tail.stdout.readline()
    tail.stdout.close()
    assert tail.stderr.read() == ""
    tail.stderr.close()
    assert tail.wait(PATIENCE_S) == 0


def test_events_of_others_cannot_steer_the_terminal(cli: Cli, client: SyncClient) -> None:
    hostile = "\x1b]0;owned\x07\x9b31m\u202eevil\r\n"
    publish(client, [Event(id=hostile, msg=hostile, key=hostile)])
    shown = cli("tail", "tweets", "--no-follow")
    assert shown.count("\n") == 1
    assert (
        not set(shown)
        & set(hostile.replace("evil", "").replace("owned", "").replace("\n", ""))
        & set(map(chr, range(32)))
    )
    assert not {"\x9b", "\u202e"} & set(shown)
    assert printable("\x1b[1m👩‍👩‍👧 naïve") == "\\x1b[1m👩‍👩‍👧 naïve"


# Export


def test_export_has_the_events_that_are_neither_settled_nor_dead(
    cli: Cli, client: SyncClient, broker: BrokerProcess
) -> None:
    publish(client, numbered(12))
    with (
        Consumer(
            broker, "hello billing", "sub tweets as=inventory from=earliest prefetch=4 tries=1 max_wait=0s"
        ) as consumer,
        Consumer(broker, "hello billing", "sub tweets as=mailing from=6 prefetch=1 tries=9 backoff=1h") as mailing,
    ):
        # Priority 2 first: 2, 5, 8 and 11 are in flight.
        consumer.type("ack tweets @2", 'nack tweets @5 "never"', "ack tweets @8")
        mailing.type("nack tweets @8")
        view = json.loads(cli("export"))
    stored = {event.offset: event for event in client.read("tweets", 0).events}
    expected = {
        "inventory": [0, 1, 3, 4, 6, 7, 9, 10, 11],
        "mailing": [6, 7, 8, 9, 10, 11],
    }
    assert view == {
        name: {
            "tweets": [
                {"timestamp": e.timestamp, "priority": e.priority, "msg": e.decode(), "id": e.id}
                for e in map(stored.__getitem__, offsets)
            ]
        }
        for name, offsets in expected.items()
    }


def test_export_of_many_events_agrees_with_stats(
    cli: Cli, client: SyncClient, broker: BrokerProcess, tmp_path: Path
) -> None:
    total = 25_000
    publish(client, (Event(id=str(n), msg=n, priority=n % 2) for n in range(total)))
    publish(client, [Event(id="only", msg=None)], topic="other")
    with (
        Consumer(broker, "hello billing", "sub tweets as=inventory from=earliest prefetch=100000") as consumer,
        Consumer(broker, "hello billing", "sub other as=inventory from=earliest"),
    ):
        # The settled events leave small and large gaps: a read spans the small ones and skips the large ones.
        left = [n for n in range(total) if n % (2 * GAP) in {0, 1, 7} or n > total - 50]
        settled = sorted(set(range(total)) - set(left))
        for at in range(0, len(settled), 5000):
            consumer.type("ack tweets " + " ".join(f"@{n}" for n in settled[at : at + 5000]))
        target = tmp_path / "view.json"
        assert cli("export", "--out", str(target)) == ""
        view = json.loads(target.read_text())
        figures = client.stats()["topics"]["tweets"]["subscriptions"]["inventory"]
        assert figures["pending"] + figures["in_flight"] == len(left)
        assert [event["msg"] for event in view["inventory"]["tweets"]] == left
        assert [event["id"] for event in view["inventory"]["other"]] == ["only"]
        assert json.loads(cli("export", "--topic", "other", "--as", "inventory")) == {
            "inventory": {"other": view["inventory"]["other"]}
        }
        assert list(tmp_path.glob("view.json*")) == [target]


def test_completion_comes_from_the_brokers_own_help_topics_and_subscriptions(
    client: SyncClient, broker: BrokerProcess
) -> None:
    publish(client, numbered(1))
    publish(client, numbered(1), topic="users")
    with (
        Consumer(broker, "hello billing", "sub tweets as=inventory"),
        Consumer(broker, "hello billing", "sub users as=mailing"),
    ):
        complete = Completion(client).candidates
        assert complete([], "su") == ["sub "]
        assert complete([], "un") == ["unmark ", "unsettled ", "unsub "]
        assert complete(["sub"], "") == ["dead_letters ", "tweets ", "users "]
        assert complete(["subscribe"], "us") == ["users "]
        assert complete(["sub", "tweets"], "as=") == ["as=inventory "]
        assert complete(["dead"], "as=") == ["as=inventory ", "as=mailing "]
        assert complete(["dead"], "topic=t") == ["topic=tweets "]
        assert complete(["sub", "tweets", "tries=5"], "t") == ["timeout="]
        assert complete(["sub", "tweets"], "c") == ["create "]
        assert complete(["hello", "me"], "re") == ["resume "]
        assert complete(["help"], "redr") == ["redrive "]
        assert complete(["redrive", "tweets"], "") == ["as=", "rate="]
        assert complete(["nonsense"], "") == []
        broker.kill()
        assert complete(["sub"], "x") == []


# The method `command` of the clients


def test_a_command_typed_through_the_sync_client(client: SyncClient) -> None:
    publish(client, numbered(1))
    assert client.command("last tweets nobody") == "+OK last tweets nobody null"
    with pytest.raises(Refusal, match="unknown_topic there is no topic nothing"):
        client.command("explain nothing @1 as=s")
    for line in ("read tweets earliest", "SUB tweets", "quit", "ping\nping", ""):
        with pytest.raises(ValueError, match="is not a command with one reply"):
            client.command(line)
    assert client.command("ping") == "+PONG"


@pytest.mark.anyio
async def test_a_command_typed_through_the_client(broker: BrokerProcess) -> None:
    async with Client(broker.address) as client:
        assert await client.command("ping") == "+PONG"
        with pytest.raises(Refusal, match="unknown_command"):
            await client.command("nonsense")
        with pytest.raises(ValueError, match="is not a command with one reply"):
            await client.command("read tweets earliest")
