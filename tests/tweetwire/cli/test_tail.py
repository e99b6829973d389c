"""``tail`` on a real broker: which events it shows, and how."""

import json
import signal
from typing import Any

import pytest

from tests.support.commands import PATIENCE_S, Tweetwire
from tweetwire import Event, SyncClient
from tweetwire.cli import log_pages
from tweetwire.cli.event_format import read_format
from tweetwire.cli.log_pages import last_lines
from tweetwire.protocol.errors import Refusal, StartError


def publish(client: SyncClient, topic: str, count: int, first: int = 0) -> None:
    events = (
        Event(id=f"e{n}", msg={"n": n, "user": {"id": n % 10}}, key=f"k{n % 3}") for n in range(first, first + count)
    )
    client.publish_many(topic, events)


def numbers(text: str) -> list[int]:
    return [json.loads(line)["offset"] for line in text.splitlines()]


def test_without_flags_it_shows_the_last_ten_and_follows(
    tweetwire: Tweetwire, shared_client: SyncClient, topic: str
) -> None:
    publish(shared_client, topic, 25)
    with tweetwire.started("tail", topic, "--json") as process:
        assert process.stdout is not None
        shown = [json.loads(process.stdout.readline())["offset"] for _ in range(10)]
        assert shown == list(range(15, 25))
        publish(shared_client, topic, 1, 25)
        assert json.loads(process.stdout.readline())["offset"] == 25
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE_S) == ("", "")
        assert process.returncode == 0


def test_n_counts_the_last_events_that_match(tweetwire: Tweetwire, shared_client: SyncClient, topic: str) -> None:
    publish(shared_client, topic, 3000)

    def shown(*words: object) -> list[int]:
        return numbers(tweetwire("tail", topic, "--no-follow", "--json", *words).out)

    assert shown("-n", 3) == [2997, 2998, 2999]
    assert shown("-n", 20, "--where", "msg.user.id == 7") == list(range(2807, 3000, 10))
    assert shown("-n", 9, "--where", "msg.n < 5 and key == 'k1'") == [1, 4]
    assert shown("-n", 9, "--where", "msg.absent == 1") == []
    assert shown("-n", 2, "--until", "@1000") == [998, 999]
    assert shown("-n", 5, "--since", "@2998") == [2998, 2999]
    assert shown("--since", "@10", "--until", "@20", "--where", "msg.user.id in [3, 4]") == [13, 14]
    assert shown("--where", "msg.n >= 2990", "--count", 4) == [2990, 2991, 2992, 2993]
    assert shown("--until", "@3") == [0, 1, 2]
    assert shown("--since", "1h", "--count", 1) == [0]
    assert shown("--until", "1h") == []
    assert shown("--since", "2999-01-01") == []


def test_until_ends_without_waiting(tweetwire: Tweetwire, shared_client: SyncClient, topic: str) -> None:
    publish(shared_client, topic, 5)
    assert numbers(tweetwire("tail", topic, "--json", "--until", "2999-01-01").out) == [0, 1, 2, 3, 4]


def test_an_expression_also_chooses_among_new_events(
    tweetwire: Tweetwire, shared_client: SyncClient, topic: str
) -> None:
    publish(shared_client, topic, 20)
    where = ("--where", "msg.user.id == 7", "--json", "--count", 3, "-n", 9)
    with tweetwire.started("tail", topic, *where) as process:
        assert process.stdout is not None
        assert [json.loads(process.stdout.readline())["offset"] for _ in range(2)] == [7, 17]
        publish(shared_client, topic, 10, 20)
        out, errors = process.communicate(timeout=PATIENCE_S)
    assert (numbers(out), errors, process.returncode) == ([27], "", 0)


def test_count_without_a_start_waits_for_new_events(
    tweetwire: Tweetwire, shared_client: SyncClient, topic: str
) -> None:
    publish(shared_client, topic, 5)
    with tweetwire.started("tail", topic, "--json", "--count", 1) as process:
        # The command may not have begun to read yet, so publish events until it has shown one.
        while process.poll() is None:
            publish(shared_client, topic, 1, 5)
        out, _ = process.communicate(timeout=PATIENCE_S)
    (offset,) = numbers(out)
    assert offset >= 5


def test_a_template_shows_members(tweetwire: Tweetwire, shared_client: SyncClient, topic: str) -> None:
    shared_client.publish(topic, Event(id="a", msg={"total": 12.5, "tags": ["x", None]}, key="blue\n"))
    shared_client.publish(topic, Event(id="b", msg=[1], parent="a"))
    template = "{offset} {key} {msg.total} {msg.tags} {{{parent}}} {msg[0]}"
    out = tweetwire("tail", topic, "--no-follow", "--format", template).out
    assert out == '0 blue\\n 12.5 ["x",null] {} \n1    {a} 1\n'


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{offset", "--format: the brace at character 1 has no partner; write {{"),
        ("a}", "--format: the brace at character 2 has no partner; write }}"),
        ("{}", "--format: a member or a value is expected at character 1"),
        ("{mgs}", "--format: an event has no member 'mgs'"),
        ("{msg.n + 1}", "--format: "),
    ],
)
def test_a_wrong_template_is_reported_in_one_sentence(template: str, sentence: str) -> None:
    with pytest.raises(StartError) as caught:
        read_format(template)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--where", "msg.a = 1"), "--where: '= 1' at character 7 is not part of an expression; write =="),
        (("--json", "--format", "{id}"), "--json and --format exclude each other"),
        (("--since", "1h", "--from", "2h"), "--since and --from mean the same"),
        (("--until", "tomorrowish"), "--until: 'tomorrowish' is not a place"),
        (("-n", "0"), "'0' is less than 1"),
    ],
)
def test_misuse_is_reported_in_one_sentence(tweetwire: Tweetwire, words: tuple[str, ...], sentence: str) -> None:
    done = tweetwire("tail", "misused", *words, status=2)
    assert sentence in done.errors
    assert done.errors.count("\n") == 1


def test_a_missing_topic_is_reported_in_one_sentence(tweetwire: Tweetwire) -> None:
    done = tweetwire("tail", "missing", status=2)
    assert "the broker refuses (unknown_topic)" in done.errors
    assert done.errors.count("\n") == 1


def test_the_last_events_of_a_large_topic_are_read_without_the_others(
    shared_client: SyncClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(shared_client, topic, 5000)
    read = 0
    read_lines = shared_client.read_lines

    def counting(*args: Any, **options: Any) -> tuple[list[bytes], int]:
        nonlocal read
        lines, after = read_lines(*args, **options)
        read += len(lines)
        return lines, after

    monkeypatch.setattr(shared_client, "read_lines", counting)
    last = last_lines(shared_client, topic, range(5000), 10, lambda _: True)
    assert [log_pages.line_offset(line) for line in last] == list(range(4990, 5000))
    assert read == 10
    last_lines(shared_client, topic, range(5000), 10, lambda line: b'"id":7' in line)
    assert read < 1000


def test_pages_skip_missing_offsets_and_stop_at_their_end(
    shared_client: SyncClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(shared_client, topic, 30)
    stored, _ = shared_client.read_lines(topic, 0)
    gone = {3, 4, 5, 20}

    def read_lines(_: str, offset: int, *, limit: int) -> tuple[list[bytes], int]:
        left = [line for at, line in enumerate(stored) if at >= offset and at not in gone][:limit]
        return left, log_pages.line_offset(left[-1]) + 1 if left else 30

    monkeypatch.setattr(shared_client, "read_lines", read_lines)
    monkeypatch.setattr(log_pages, "PAGE", 4)
    lines = [line for page in log_pages.log_pages(shared_client, topic, 0, 21) for line in page]
    assert lines == [line for at, line in enumerate(stored) if at < 21 and at not in gone]


def test_a_topic_that_became_shorter_was_made_again(shared_client: SyncClient, topic: str) -> None:
    publish(shared_client, topic, 3)
    with pytest.raises(Refusal, match="dropped and made again"):
        list(log_pages.log_pages(shared_client, topic, 0, 9))
