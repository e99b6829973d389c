"""Server-Sent Events: a stream of a log, and of a durable subscription."""

import os
import signal
import socket
import threading
import time
from itertools import islice
from pathlib import Path

import httpx
import pytest

from tests.broker.gateways.http.serving import HttpBroker, basic, http_broker
from tests.broker.gateways.http.sse import following
from tests.support.users import entry

TOKEN = "a-token-for-the-tests"


def publish(client: httpx.Client, topic: str, *messages: int) -> None:
    body = "\n".join(f'{{"id":"e-{n}","msg":{n}}}' for n in messages)
    assert client.post(f"/topics/{topic}", content=body).status_code == 200


def test_a_stream_has_the_stored_events_and_then_new_ones(client: httpx.Client, shared: HttpBroker) -> None:
    publish(client, "live", 1, 2)
    with shared.client() as other, following(other, "/topics/live/events?from=earliest") as events:
        first = list(islice(events, 2))
        publish(client, "live", 3)
        first.append(next(events))
    assert [(one.id, one.data["msg"], one.data["offset"]) for one in first] == [("0", 1, 0), ("1", 2, 1), ("2", 3, 2)]


def test_without_a_place_a_stream_begins_with_the_next_event(client: httpx.Client, shared: HttpBroker) -> None:
    publish(client, "next", 1)
    with shared.client() as other, following(other, "/topics/next/events") as events:
        publish(client, "next", 2)
        assert next(events).data["msg"] == 2


def test_a_stream_continues_after_the_last_event_id(client: httpx.Client) -> None:
    publish(client, "again", *range(5))
    with following(client, "/topics/again/events?from=earliest", {"last-event-id": "2"}) as events:
        assert [one.data["msg"] for one in islice(events, 2)] == [3, 4]


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        ("/topics/absent/events", {}, 404, "unknown_topic"),
        ("/topics/again/events", {"last-event-id": "x"}, 400, "bad_arguments"),
        ("/topics/again/events?prefetch=3", {}, 400, "bad_arguments"),
        ("/topics/again/events?as=a%20b", {}, 400, "bad_arguments"),
        ("/topics/again/events?as=a&ack=always", {}, 400, "bad_arguments"),
        ("/topics/again/events?as=a&prefetch=0", {}, 400, "bad_arguments"),
    ],
)
def test_a_wrong_stream_is_refused_before_it_begins(
    client: httpx.Client, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    publish(client, "again", 1)
    answer = client.get(path, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_events_of_a_subscription_stay_in_flight_until_they_are_acked(client: httpx.Client, shared: HttpBroker) -> None:
    publish(client, "work", 1, 2, 3)
    with shared.client() as other:
        with following(other, "/topics/work/events?as=billing&from=earliest") as events:
            assert [one.data["msg"] for one in islice(events, 3)] == [1, 2, 3]
            assert client.post("/subscriptions/work/billing/ack", json={"refs": [0, "e-2"]}).json() == {"acked": 2}
            stale = client.post("/subscriptions/work/billing/ack", json={"refs": [0]})
            assert (stale.status_code, stale.json()["error"]["code"]) == (409, "stale")
        with following(other, "/topics/work/events?as=billing") as events:
            last = next(events)
            assert (last.data["msg"], last.data["try"]) == (3, 2)


def test_with_ack_sent_an_event_is_settled_when_it_was_sent(client: httpx.Client, shared: HttpBroker) -> None:
    publish(client, "once", 1, 2)
    with shared.client() as other, following(other, "/topics/once/events?as=a&from=earliest&ack=sent") as events:
        assert len(list(islice(events, 2))) == 2
        deadline = time.monotonic() + 20
        while client.get("/topics/once/stats").json()["topics"]["once"]["subscriptions"]["a"]["settled"] != 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_stream_ends_with_its_user(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(entry("ann", TOKEN) + entry("bob", TOKEN))
    with (
        http_broker(tmp_path / "broker", "--users", users) as broker,
        broker.client(headers=basic("ann", TOKEN)) as ann,
    ):
        publish(ann, "web", 1)
        with following(ann, "/topics/web/events?from=earliest") as events:
            next(events)
            users.write_text(entry("bob", TOKEN))
            os.kill(broker.pid, signal.SIGHUP)
            with pytest.raises((StopIteration, httpx.RemoteProtocolError)):
                next(events)


def test_a_shutdown_ends_streams_and_answers_requests_that_wait(tmp_path: Path) -> None:
    with http_broker(tmp_path / "broker") as broker, broker.client() as client, broker.client() as other:
        publish(client, "web", 1)
        answers: list[int] = []

        def wait() -> None:
            answers.append(other.get("/topics/web?from=1&wait=60s").status_code)

        thread = threading.Thread(target=wait)
        with following(client, "/topics/web/events?from=earliest") as events:
            next(events)
            thread.start()
            time.sleep(0.5)
            os.kill(broker.pid, signal.SIGTERM)
            assert list(events) == []
        thread.join()
        assert answers == [200]
        assert broker.wait() == 0


def test_a_reader_that_does_not_read_is_cut_and_holds_little_memory(tmp_path: Path) -> None:
    with http_broker(tmp_path / "broker", "--stalled-after", "2s") as broker, broker.client() as client:
        body = "\n".join(f'{{"id":"{n}","msg":"{"x" * 10_000}"}}' for n in range(300))
        for _ in range(8):
            assert client.post("/topics/big", content=body).status_code == 200
        with socket.create_connection(("127.0.0.1", broker.http_port)) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.sendall(b"GET /topics/big/events?from=earliest HTTP/1.1\r\nHost: localhost\r\n\r\n")
            deadline = time.monotonic() + 60
            while not broker.said("ended an HTTP connection that did not read"):
                assert time.monotonic() < deadline
                time.sleep(0.1)
