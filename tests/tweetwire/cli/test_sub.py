"""``sub`` on a real broker: deliveries, acks, and the remaining events after each kind of end."""

import json
import signal
from typing import Any

import pytest

from tests.support.commands import PATIENCE_S, Tweetwire
from tests.support.waiting import until
from tweetwire import Event, SyncClient


def publish(client: SyncClient, topic: str, *ids: str) -> None:
    client.publish_many(topic, [Event(id=one, msg={"of": one}) for one in ids])


def figures(client: SyncClient, topic: str, name: str = "s") -> dict[str, Any]:
    found: dict[str, Any] = client.stats(topic)["topics"][topic]["subscriptions"].get(name, {})
    return found


def ids(text: str) -> list[str]:
    return [json.loads(line)["id"] for line in text.splitlines()]


FROM_FIRST = ("--as", "s", "--from", "earliest")


def test_sub_writes_events_and_acks_them(tweetwire: Tweetwire, shared_client: SyncClient, topic: str) -> None:
    publish(shared_client, topic, "a", "b", "c")
    out = tweetwire("sub", topic, *FROM_FIRST, "--json", "--count", 2).out
    stored, _ = shared_client.read_lines(topic, 0)
    assert out.encode().splitlines() == stored[:2]
    assert (figures(shared_client, topic)["settled"], figures(shared_client, topic)["pending"]) == (2, 1)
    assert ids(tweetwire("sub", topic, "--as", "s", "--json", "--count", 1).out) == ["c"]


def test_events_are_text_for_people(tweetwire: Tweetwire, shared_client: SyncClient, topic: str) -> None:
    publish(shared_client, topic, "a")
    assert tweetwire("sub", topic, *FROM_FIRST, "--count", 1).out.endswith(' a {"of":"a"}\n')


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order_with_all_acks(
    tweetwire: Tweetwire, shared_client: SyncClient, number: signal.Signals
) -> None:
    topic = f"signal-{number}"
    publish(shared_client, topic, *map(str, range(500)))
    with tweetwire.started("sub", topic, *FROM_FIRST, "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [process.stdout.readline()]
        process.send_signal(number)
        # The buffer of this file may hold more lines, which `communicate` would not see.
        lines += process.stdout.readlines()
        assert (process.wait(PATIENCE_S), process.stderr.read()) == (0, "")
    after = figures(shared_client, topic)
    assert after["settled"] == len(lines)
    assert (after["in_flight"], after["settled"] + after["pending"]) == (0, 500)


def test_with_ack_none_every_event_is_given_back(tweetwire: Tweetwire, shared_client: SyncClient, topic: str) -> None:
    publish(shared_client, topic, "a", "b", "c")
    assert ids(tweetwire("sub", topic, *FROM_FIRST, "--json", "--ack", "none", "--count", 2).out) == ["a", "b"]
    after = until(lambda: figures(shared_client, topic)["in_flight"] == 0 and figures(shared_client, topic))
    assert (after["settled"], after["pending"], after["redelivered"]) == (0, 3, 0)
    again = [json.loads(line) for line in tweetwire("sub", topic, "--as", "s", "--json", "--count", 3).out.splitlines()]
    assert [event["id"] for event in again] == ["a", "b", "c"]


def test_a_reader_that_ends_leaves_unwritten_events_unacked(
    tweetwire: Tweetwire, shared_client: SyncClient, topic: str
) -> None:
    shared_client.publish_many(topic, (Event(id=str(n), msg="x" * 1000) for n in range(2000)))
    with tweetwire.started("sub", topic, *FROM_FIRST, "--json", "--prefetch", 50) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    after = until(lambda: figures(shared_client, topic)["in_flight"] == 0 and figures(shared_client, topic))
    assert after["settled"] < 2000
    assert after["settled"] + after["pending"] + after["delayed"] == 2000


def test_a_prompt_asks_for_each_event(tweetwire: Tweetwire, shared_client: SyncClient, topic: str) -> None:
    publish(shared_client, topic, "a", "b", "c", "d", "e")
    answers = "ack\nwhat\nn no such order\ns\na\nq\n"
    done = tweetwire("sub", topic, *FROM_FIRST, "--ack", "prompt", "--json", "--prefetch", 5, stdin=answers)
    assert ids(done.out) == ["a", "b", "c", "d", "e"]
    assert done.errors.count("ack, nack [REASON], skip or quit? ") == 6
    after = until(lambda: figures(shared_client, topic)["in_flight"] == 0 and figures(shared_client, topic))
    assert (after["settled"], after["pending"] + after["delayed"]) == (2, 3)
    explained = json.loads(shared_client.command(f"explain {topic} @1 as=s").split(" ", 4)[4])
    assert [error["message"] for error in explained["errors"]] == ["no such order"]
    assert json.loads(shared_client.command(f"explain {topic} @2 as=s").split(" ", 4)[4])["failed_tries"] == 0


def test_the_end_of_the_answers_ends_a_prompt(tweetwire: Tweetwire, shared_client: SyncClient, topic: str) -> None:
    publish(shared_client, topic, "a", "b")
    tweetwire("sub", topic, *FROM_FIRST, "--ack", "prompt", "--json", stdin="a\n")
    assert figures(shared_client, topic)["settled"] == 1


def test_an_event_stays_in_flight_while_the_user_thinks(
    tweetwire: Tweetwire, shared_client: SyncClient, topic: str
) -> None:
    publish(shared_client, topic, "a")
    shared_client.unsubscribe(shared_client.subscribe(topic, as_="s", from_="earliest", timeout_s=3, prefetch=1))
    with tweetwire.started("sub", topic, "--as", "s", "--ack", "prompt", "--json", "--count", 1) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["id"] == "a"
        # Each extension is a command, and so is each request for the figures.
        looks = 0
        before: int = shared_client.stats()["commands"]

        def extensions() -> int:
            nonlocal looks
            looks += 1
            commands: int = shared_client.stats()["commands"]
            return commands - before - looks

        until(lambda: extensions() >= 4, pause_s=0.1)
        process.communicate("a\n", timeout=PATIENCE_S)
    after = figures(shared_client, topic)
    assert (after["settled"], after["redelivered"]) == (1, 0)


def test_a_subscription_without_a_name_ends_with_the_command(
    tweetwire: Tweetwire, shared_client: SyncClient, topic: str
) -> None:
    publish(shared_client, topic, "a")
    tweetwire("sub", topic, "--from", "earliest", "--count", 1)
    until(lambda: shared_client.stats(topic)["topics"][topic]["subscriptions"] == {})


def test_misuse_is_reported_in_one_sentence(tweetwire: Tweetwire, topic: str) -> None:
    assert "(unknown_topic)" in tweetwire("sub", topic, status=2).errors
    assert (
        "--ack: 'maybe' is not one of auto, prompt, none" in tweetwire("sub", topic, "--ack", "maybe", status=2).errors
    )


def test_a_pattern_consumes_all_its_topics_and_names_them(tweetwire: Tweetwire, shared_client: SyncClient) -> None:
    for word in ("a", "b"):
        publish(shared_client, f"many.{word}", f"in-{word}")
    text = tweetwire("sub", "many.*", *FROM_FIRST, "--count", 2).out
    assert {line.split()[0] for line in text.splitlines()} == {"many.a", "many.b"}
    publish(shared_client, "many.c", "in-c")
    assert ids(tweetwire("sub", "many.*", "--as", "s", "--json", "--count", 1).out) == ["in-c"]
    listed = json.loads(tweetwire("subscriptions", "--json").out)
    assert {one["topic"] for one in listed if one["pattern"] == "many.*"} == {"many.a", "many.b", "many.c"}
    assert "many.*" in tweetwire("subscriptions").out
    assert "pattern subscriptions" in tweetwire("stats").out
    tweetwire("unsub", "many.*", "--as", "s", "--end", "--yes")
    assert "s" not in shared_client.stats("many.a")["topics"]["many.a"]["subscriptions"]


def test_a_wrong_pattern_ends_with_a_sentence(tweetwire: Tweetwire) -> None:
    assert "a whole word between dots" in tweetwire("sub", "many*", "--as", "s", status=2).errors
