"""The work queue by polling: events in flight belong to their user, and every event is settled once or comes again."""

import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.broker.gateways.http.serving import HttpBroker, basic, http_broker, lines_of
from tests.support.users import entry

TOKEN = "a-token-for-the-tests"


@pytest.fixture
def topic(client: httpx.Client, request: pytest.FixtureRequest) -> str:
    """A topic of this test with ten events."""
    name: str = request.node.originalname
    body = "\n".join(f'{{"id":"e-{n}","msg":{n}}}' for n in range(10))
    assert client.post(f"/topics/{name}", content=body).status_code == 200
    return name


def take(client: httpx.Client, topic: str, query: str = "max=3&from=earliest") -> list[int]:
    answer = client.post(f"/subscriptions/{topic}/jobs/take?{query}")
    assert answer.status_code == 200, answer.text
    return [event["msg"] for event in lines_of(answer)]


def settle(client: httpx.Client, topic: str, verb: str, *refs: int | str, **more: object) -> httpx.Response:
    return client.post(f"/subscriptions/{topic}/jobs/{verb}", json={"refs": refs, **more})


def test_a_worker_takes_and_acks(client: httpx.Client, topic: str) -> None:
    assert take(client, topic) == [0, 1, 2]
    assert take(client, topic) == [3, 4, 5]
    assert settle(client, topic, "ack", 0, 1, "e-4").json() == {"acked": 3}
    assert take(client, topic, "max=100") == [6, 7, 8, 9]
    assert take(client, topic, "max=100") == []
    assert settle(client, topic, "ack", 2, 3, 5, 6, 7, 8, 9).json() == {"acked": 7}
    assert settle(client, topic, "ack", 2).status_code == 409


def test_acks_do_not_make_the_holder_take_further_events(client: httpx.Client, topic: str) -> None:
    take(client, topic)
    settle(client, topic, "ack", 0, 1)
    figures = client.get(f"/topics/{topic}/stats").json()["topics"][topic]["subscriptions"]["jobs"]
    assert (figures["in_flight"], figures["pending"]) == (1, 7)


def test_a_nacked_event_comes_again_with_its_try(client: httpx.Client, topic: str) -> None:
    take(client, topic, "max=1&from=earliest&tries=2")
    assert settle(client, topic, "nack", 0, error={"message": "no", "code": "E1"}).json() == {"nacked": 1}
    (event,) = lines_of(client.post(f"/subscriptions/{topic}/jobs/take"))
    assert (event["msg"], event["try"]) == (0, 2)
    settle(client, topic, "nack", "e-0", error="no again")
    deadline = time.monotonic() + 20
    while not (dead := client.get(f"/topics/{topic}/dead?as=jobs").json()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert client.get(f"/topics/{topic}/explain?ref=@0&as=jobs").json()["state"] == "dead", dead
    assert client.post(f"/subscriptions/{topic}/jobs/redrive").json() == {"redriven": 1}
    assert take(client, topic, "max=100&wait=20s")[0] in {0, 1}


def test_the_timeout_returns_events_and_extend_restarts_it(client: httpx.Client, topic: str) -> None:
    assert take(client, topic, "max=2&from=earliest&timeout=1s") == [0, 1]
    deadline = time.monotonic() + 2.5
    while time.monotonic() < deadline:
        assert settle(client, topic, "extend", 1).json() == {"extended": 1}
        time.sleep(0.2)
    assert settle(client, topic, "ack", 0).status_code == 409
    assert settle(client, topic, "ack", 1).json() == {"acked": 1}
    assert 0 in take(client, topic, "max=100&wait=10s")


def test_a_take_waits_for_an_event(client: httpx.Client, shared: HttpBroker) -> None:
    client.post("/topics/slow", json={"msg": 0})
    taken: list[list[int]] = []

    def wait() -> None:
        with shared.client() as other:
            taken.append(take(other, "slow", "max=5&wait=20s"))

    assert take(client, "slow", "max=5") == []
    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.3)
    assert settle(client, "slow", "ack", 0).status_code == 409
    client.post("/topics/slow", json={"msg": 1})
    thread.join()
    assert taken == [[1]]


def test_a_client_that_left_while_it_waited_takes_nothing(client: httpx.Client, shared: HttpBroker) -> None:
    client.post("/topics/left", json={"msg": 0})
    take(client, "left", "max=1")
    with shared.client() as other, pytest.raises(httpx.ReadTimeout):
        other.post("/subscriptions/left/jobs/take?wait=30s", timeout=0.5)
    time.sleep(0.5)
    client.post("/topics/left", json={"msg": 1})
    assert take(client, "left", "max=1&wait=10s") == [1]


def test_many_workers_share_the_events(client: httpx.Client, shared: HttpBroker) -> None:
    count = 2_000
    body = "\n".join(f'{{"id":"{n}","msg":{n}}}' for n in range(count))
    client.post("/topics/shared", content=body)
    take(client, "shared", "max=1&from=earliest")
    settle(client, "shared", "ack", 0)
    done: list[int] = []

    def work() -> None:
        with shared.client() as other:
            while taken := take(other, "shared", "max=50&wait=500ms"):
                assert settle(other, "shared", "ack", *taken).json() == {"acked": len(taken)}
                done.extend(taken)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(1, count))


def test_events_in_flight_belong_to_their_user_and_come_again_after_a_kill(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(entry("ann", TOKEN) + entry("bob", TOKEN))
    with http_broker(tmp_path / "broker", "--users", users) as broker:
        with broker.client(headers=basic("ann", TOKEN)) as ann, broker.client(headers=basic("bob", TOKEN)) as bob:
            ann.post("/topics/web", json={"id": "a", "msg": 1})
            assert take(ann, "web", "from=earliest") == [1]
            assert bob.post("/subscriptions/web/jobs/take").status_code == 403
            assert settle(bob, "web", "ack", 0).status_code == 409
        broker.kill()
        broker.start()
        with broker.client(headers=basic("ann", TOKEN)) as ann:
            assert settle(ann, "web", "ack", 0).status_code == 409
            assert take(ann, "web", "wait=10s") == [1]
            assert settle(ann, "web", "ack", 0).json() == {"acked": 1}


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("take?max=0", "", 400, "bad_arguments"),
        ("take?wait=1h", "", 400, "bad_arguments"),
        ("take?from=x", "", 400, "bad_arguments"),
        ("ack", "", 400, "bad_arguments"),
        ("ack", '{"refs":[]}', 400, "bad_arguments"),
        ("ack", '{"refs":[-1]}', 400, "bad_arguments"),
        ("ack", '{"refs":["two words"]}', 400, "bad_arguments"),
        ("ack", '{"refs":["a\\ndrop x"]}', 400, "bad_arguments"),
        ("ack", '{"refs":[1],"error":"x"}', 400, "bad_arguments"),
        ("nack", '{"refs":[1]}', 409, "stale"),
        ("redrive", '{"rate":0}', 400, "bad_arguments"),
    ],
)
def test_a_wrong_request_is_refused(client: httpx.Client, path: str, body: str, status: int, code: str) -> None:
    client.post("/topics/wrong", json={"msg": 1})
    answer = client.post(f"/subscriptions/wrong/jobs/{path}", content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_an_ended_subscription_is_reported_to_the_take_that_waits(client: httpx.Client, shared: HttpBroker) -> None:
    client.post("/topics/ended", json={"msg": 1})
    statuses: list[int] = []

    def wait() -> None:
        with shared.client() as other:
            statuses.append(other.post("/subscriptions/ended/jobs/take?wait=30s").status_code)

    thread = threading.Thread(target=wait)
    thread.start()
    deadline = time.monotonic() + 20
    while not client.get("/topics/ended/stats").json()["topics"]["ended"]["subscriptions"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with socket.create_connection(("127.0.0.1", shared.port)) as line:
        line.sendall(b"unsub ended as=jobs end\nquit\n")
        while line.recv(4096):
            pass
    thread.join()
    assert statuses == [404]
