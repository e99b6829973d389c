"""``pub`` on a real broker: single events, the lines of stdin, and its error messages."""

import json
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.support.commands import PATIENCE_S, Tweetwire
from tests.support.processes import BrokerProcess
from tests.support.waiting import until
from tweetwire import StoredEvent, SyncClient
from tweetwire.cli.event_ids import EventIds


def stored(client: SyncClient, topic: str) -> list[StoredEvent]:
    return client.read(topic, 0, limit=100_000).events


def lines(count: int) -> str:
    return "".join(f'{{"n":{n}}}\n' for n in range(1, count + 1))


def test_one_event_is_stored_with_the_members_that_the_flags_give(
    tweetwire: Tweetwire, shared_client: SyncClient, topic: str
) -> None:
    flags = ("--key", "blue", "--priority", 9, "--parent", "p-1", "--header", "a=b", "--header", "c=d=e")
    out = tweetwire("pub", topic, '{"total":12.5,"text":"☂"}', "--id", "o-1", *flags).out
    assert out == f"published o-1 to {topic} @0\n"
    (event,) = stored(shared_client, topic)
    assert event.decode() == {"total": 12.5, "text": "☂"}
    assert (event.id, event.key, event.priority, event.parent) == ("o-1", "blue", 9, "p-1")
    assert event.headers == {"a": "b", "c": "d=e"}


def test_ids_are_made_unique_and_in_order(tweetwire: Tweetwire, shared_client: SyncClient, topic: str) -> None:
    made = [json.loads(tweetwire("pub", topic, "null", "--json").out)["id"] for _ in range(2)]
    tweetwire("pub", topic, "-", stdin=lines(1000))
    ids = [event.id for event in stored(shared_client, topic)]
    assert ids[:2] == made
    assert ids == sorted(ids)
    assert len(set(ids)) == 1002


def test_ids_grow_even_if_the_clock_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([50, 50, 40, 60])
    monkeypatch.setattr("tweetwire.cli.event_ids.time.time_ns", lambda: next(times))
    ids = EventIds()
    made = [ids.make() for _ in range(4)]
    assert made == sorted(set(made))


def test_each_line_of_stdin_is_an_event(tweetwire: Tweetwire, shared_client: SyncClient, topic: str) -> None:
    text = '{"id":7,"user":{"name":"ada"}}\r\n\n  {"id":8,"user":{"name":"bob"}}\n{"id":9,"user":{"name":"cy"}}'
    done = tweetwire("pub", topic, "-", "--id-from", "msg.id", "--key-from", "msg.user.name", stdin=text)
    assert done.errors.startswith(f"published 3 events to {topic} in ")
    assert done.errors.count("\n") == 1
    assert [(event.id, event.key) for event in stored(shared_client, topic)] == [
        ("7", "ada"),
        ("8", "bob"),
        ("9", "cy"),
    ]


def test_many_lines_are_pipelined_in_order(tweetwire: Tweetwire, shared_client: SyncClient, topic: str) -> None:
    done = tweetwire("pub", topic, "-", stdin=lines(25_000))
    assert f"published 25,000 events to {topic} in " in done.errors
    assert [event.decode()["n"] for event in stored(shared_client, topic)] == list(range(1, 25_001))


def test_a_line_is_published_as_soon_as_it_is_typed(
    tweetwire: Tweetwire, shared_client: SyncClient, topic: str
) -> None:
    with tweetwire.started("pub", topic, "-") as process:
        assert process.stdin is not None
        for number in range(3):
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
            until(partial(_has_stored, shared_client, topic, number + 1))
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "published 3 events" in errors


def _has_stored(client: SyncClient, topic: str, count: int) -> bool:
    return _count(client, topic) == count


def _count(client: SyncClient, topic: str) -> int:
    return next((one.next for one in client.topics() if one.topic == topic), 0)


def test_a_line_that_is_not_json_ends_it_after_the_lines_before(
    tweetwire: Tweetwire, shared_client: SyncClient, topic: str
) -> None:
    done = tweetwire("pub", topic, "-", stdin=lines(700) + "{oops}\n" + lines(5), status=2)
    assert done.errors.startswith("tweetwire pub: line 701: '{oops}' is not JSON: ")
    assert done.errors.endswith("; 700 events before it were stored\n")
    assert len(stored(shared_client, topic)) == 700


def test_skip_bad_continues_and_counts(tweetwire: Tweetwire, shared_client: SyncClient, topic: str) -> None:
    text = lines(3) + "oops\n" + lines(2) + "\xff\n" + '"' + "x" * 2_000_000 + '"\n' + lines(1)
    done = tweetwire("pub", topic, "-", "--skip-bad", stdin=text.encode("latin-1"))
    first, second, third, last = done.errors.splitlines()
    assert first.startswith("tweetwire pub: line 4: 'oops' is not JSON")
    assert second.startswith("tweetwire pub: line 7: ")
    assert third.startswith("tweetwire pub: line 8: the broker refuses (too_long)")
    assert last.startswith(f"published 6 events to {topic} (3 lines skipped) in ")
    assert [event.decode()["n"] for event in stored(shared_client, topic)] == [1, 2, 3, 1, 2, 1]


def test_a_line_that_the_broker_refuses_is_named(tweetwire: Tweetwire, shared_client: SyncClient, topic: str) -> None:
    tweetwire("pub", topic, "1")
    shared_client.command(f'schema {topic} {{"type":"integer"}}')
    done = tweetwire("pub", topic, "-", stdin="1\n2\n\nfalse\n4\n", status=2)
    assert done.errors.startswith("tweetwire pub: line 4: the broker refuses (schema): ")
    assert "; 2 events before it were stored" in done.errors
    skipping = tweetwire("pub", topic, "-", "--skip-bad", stdin="1\nfalse\n3\n" * 400)
    assert f"published 800 events to {topic} (400 lines skipped)" in skipping.errors
    assert skipping.errors.count("skipped\n") == 10


def test_a_producer_stores_no_line_twice(tweetwire: Tweetwire, shared_client: SyncClient, topic: str) -> None:
    tweetwire("pub", topic, "-", "--producer", "p", stdin=lines(600))
    done = tweetwire("pub", topic, "-", "--producer", "p", stdin=lines(1000))
    assert f"published 1,000 events to {topic} (600 of them stored earlier)" in done.errors
    assert [event.decode()["n"] for event in stored(shared_client, topic)] == list(range(1, 1001))
    result = json.loads(tweetwire("pub", topic, "-", "--producer", "p", "--json", stdin=lines(1001)).out)
    assert result == {"stored": 1, "duplicates": 1000, "skipped": 0}


def test_a_lost_broker_is_reported_with_the_confirmed_events(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        tweetwire = Tweetwire(broker)
        with tweetwire.started("pub", "t", "-", "--producer", "p") as process:
            assert process.stdin is not None
            process.stdin.write(lines(50))
            process.stdin.flush()
            with SyncClient(broker.address) as client:
                until(lambda: _count(client, "t") == 50)
            broker.kill()
            _, errors = process.communicate(lines(1), timeout=PATIENCE_S)
        assert process.returncode == 2
        assert "; 50 events are confirmed; send all lines again, none is stored twice" in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_reported_with_the_confirmed_events(
    tweetwire: Tweetwire, shared_client: SyncClient, number: signal.Signals
) -> None:
    topic = f"signal-{number}"
    with tweetwire.started("pub", topic, "-") as process:
        assert process.stdin is not None
        process.stdin.write(lines(2))
        process.stdin.flush()
        until(lambda: _count(shared_client, topic) == 2)
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 2
        assert process.stderr is not None
        assert process.stderr.read() == "tweetwire pub: interrupted; 2 events are confirmed\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("{oops}",), """'{oops}' is not JSON: expected '"' (byte 1); quote the JSON for the shell"""),
        (("NaN",), "'NaN' is not JSON"),
        (("[" * 5000,), "is not JSON"),
        (("1", "--id", "a", "--id-from", "msg"), "--id and --id-from exclude each other"),
        (("1", "--key", "a", "--key-from", "msg"), "--key and --key-from exclude each other"),
        (("-", "--id", "a"), "--id is for one event; take the ids of lines from a member with --id-from"),
        (("1", "--producer", "p"), "--producer numbers the lines of stdin"),
        (("{}", "--id-from", "msg.id"), "msg.id is missing"),
        (("true", "--id-from", "msg"), "msg is neither a text nor a whole number"),
        (("1", "--id-from", "mgs"), "--id-from: an event has no member 'mgs'"),
        (("1", "--header", "a"), "--header: 'a' is not NAME=VALUE"),
        (("1", "--priority", "256"), "--priority: '256' is more than 255"),
    ],
)
def test_misuse_is_reported_in_one_sentence(tweetwire: Tweetwire, words: tuple[str, ...], sentence: str) -> None:
    done = tweetwire("pub", "misused", *words, status=2)
    assert sentence in done.errors
    assert done.errors.count("\n") == 1
    assert "Traceback" not in done.errors


def test_the_flags_of_time_set_when_an_event_is_delivered(
    tweetwire: Tweetwire, shared_client: SyncClient, topic: str
) -> None:
    tweetwire("pub", topic, "1", "--delay", "30m", "--expires", "2h")
    tweetwire("pub", topic, "2", "--at", "2027-01-02T03:04:05Z")
    tweetwire("pub", topic, "-", "--expires", "1h", stdin=lines(2))
    delayed, at, *expiring = stored(shared_client, topic)
    assert isinstance(delayed.due, int)
    assert isinstance(delayed.expires, int)
    assert delayed.expires - delayed.due == 5_400_000
    assert abs(delayed.due - delayed.timestamp - 1_800_000) < 1000
    assert at.due == 1_798_859_045_000
    assert [abs(int(str(event.expires)) - event.timestamp - 3_600_000) < 1000 for event in expiring] == [True, True]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--delay", "5m", "--at", "2100-01-01"), "--delay and --at exclude each other"),
        (("--delay", "5"), "'5' is not a duration"),
        (("--delay=-1s",), "'-1s' is not a"),
        (("--at", "10m"), "pass it with --delay"),
        (("--at", "2020-01-01"), "has passed"),
        (("--at", "garbage"), "'garbage' is not a time"),
        (("--expires", "never"), "'never' is not a time"),
        (("--delay", "5m", "--expires", "1m"), "expires must be later"),
        (("--delay", "400d"), "the longest is 365d"),
    ],
)
def test_a_wrong_time_ends_the_command_with_a_sentence(
    tweetwire: Tweetwire, topic: str, flags: tuple[str, ...], sentence: str
) -> None:
    assert sentence in tweetwire("pub", topic, "1", *flags, status=2).errors
