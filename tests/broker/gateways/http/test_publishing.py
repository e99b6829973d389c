"""POST /topics/{topic}: receipts come after the promise is kept, and each event has its own outcome."""

import threading
from pathlib import Path

import httpx
import pytest

from tests.broker.gateways.http.serving import http_broker, lines_of

LINES = {"content-type": "application/x-ndjson"}


def test_one_event_gets_a_receipt_and_is_stored_as_it_was_sent(client: httpx.Client) -> None:
    answer = client.post("/topics/one", json={"id": "a", "msg": {"n": 1}, "priority": 7, "key": "k"})
    assert answer.status_code == 200
    assert answer.json() == {"topic": "one", "offset": 0, "promise": "synced"}
    (stored,) = lines_of(client.get("/topics/one"))
    assert {**stored, "timestamp": 0} == {
        "topic": "one",
        "offset": 0,
        "timestamp": 0,
        "id": "a",
        "priority": 7,
        "msg": {"n": 1},
        "key": "k",
    }


@pytest.mark.parametrize("body", ['{"msg":1}', '{ "msg": 1 }', '{\n  "msg":\r\n 1\n}\n'])
def test_an_event_without_an_id_gets_one(client: httpx.Client, body: str) -> None:
    receipt = client.post("/topics/made", content=body).json()
    (stored,) = lines_of(client.get(f"/topics/made?from={receipt['offset']}"))
    assert len(stored["id"]) == 32
    assert stored["msg"] == 1


def test_each_line_has_its_own_outcome_in_order(client: httpx.Client) -> None:
    body = (
        '{"id":"1","msg":1}\n\n{"id":"2"}\nno event\ndelay=5m {"id":"3","msg":3}\n{"id":"4","msg":4,"msg":5}\n{"msg":6}'
    )
    answer = client.post("/topics/many", content=body, headers=LINES)
    assert answer.status_code == 207
    codes = [line.get("error", {}).get("code", line.get("offset")) for line in lines_of(answer)]
    assert codes == [0, "bad_event", "bad_event", "bad_event", "bad_event", 1]


def test_many_events_are_lines_also_without_the_content_type(client: httpx.Client) -> None:
    answer = client.post("/topics/typed", content='{"msg":1}\n{"msg":2}\n')
    assert [line["offset"] for line in lines_of(answer)] == [0, 1]


def test_if_all_events_are_refused_the_status_is_that_of_the_first(client: httpx.Client) -> None:
    answer = client.post("/topics/refused", content='{"id":1,"msg":1}\n{"x":2}\n', headers=LINES)
    assert answer.status_code == 400
    assert len(lines_of(answer)) == 2


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/topics/.hidden", b'{"msg":1}', 400, "bad_name"),
        ("/topics/a%0Ab", b'{"msg":1}', 400, "bad_name"),
        ("/topics/ok", b"", 400, "bad_arguments"),
        ("/topics/ok", b"[1]", 400, "bad_event"),
        ("/topics/ok", b'{"msg":"\xff"}', 400, "bad_utf8"),
        ("/topics/ok?nonsense=1", b'{"msg":1}', 400, "bad_arguments"),
        ("/topics/ok?delay=5m%20x", b'{"msg":1}', 400, "bad_arguments"),
        ("/topics/ok?delay=5m%0Adrop", b'{"msg":1}', 400, "bad_arguments"),
        ("/topics/dead_letters", b'{"msg":1}', 403, "forbidden"),
        ("/topics/ok", b'{"msg":"' + b"x" * (1 << 20) + b'"}', 413, "too_long"),
        ("/topics/ok", b"x" * (5 << 20), 413, "too_long"),
        ("/topics/ok", b'{"msg":1}\n' * 10_001, 413, "too_long"),
    ],
)
def test_a_wrong_request_gets_its_code_and_a_sentence(
    client: httpx.Client, path: str, body: bytes, status: int, code: str
) -> None:
    answer = client.post(path, content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.json()["error"]["message"]


def test_options_of_a_publish_are_parameters(client: httpx.Client) -> None:
    client.post("/topics/later?delay=1h", json={"id": "late", "msg": 1})
    (stored,) = lines_of(client.get("/topics/later"))
    assert stored["due"] > stored["timestamp"]
    answer = client.post("/topics/later?after=nowhere&within=50ms", json={"msg": 1})
    assert answer.json()["promise"] == "synced"


def test_a_producer_with_sequences_stores_an_event_once(client: httpx.Client) -> None:
    event = {"id": "p-1", "msg": 1, "producer": "shop", "sequence": 1}
    assert client.post("/topics/numbered", json=event).json()["offset"] == 0
    again = client.post("/topics/numbered", json=event).json()
    assert again == {"topic": "numbered", "offset": 0, "promise": "synced", "duplicate": True}
    refused = client.post("/topics/numbered", json={"id": "x", "msg": 1, "sequence": 2})
    assert refused.status_code == 400


def test_a_repeated_idempotency_key_returns_the_first_receipt_also_after_a_kill(tmp_path: Path) -> None:
    with http_broker(tmp_path / "broker") as broker:
        with broker.client() as client:
            first = client.post("/topics/paid", json={"msg": 1}, headers={"idempotency-key": "order-7"}).json()
            assert client.post("/topics/paid", json={"msg": 2}, headers={"idempotency-key": "order-7"}).json() == first
        broker.kill()
        broker.start()
        with broker.client() as client:
            assert client.post("/topics/paid", json={"msg": 3}, headers={"idempotency-key": "order-7"}).json() == first
            assert [event["msg"] for event in lines_of(client.get("/topics/paid"))] == [1]


def test_the_same_key_in_many_requests_at_once_is_stored_once(client: httpx.Client) -> None:
    receipts: list[int] = []

    def send() -> None:
        receipts.append(
            client.post("/topics/at_once", json={"msg": 1}, headers={"idempotency-key": "same"}).json()["offset"]
        )

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert receipts == [0] * 8
    assert len(lines_of(client.get("/topics/at_once"))) == 1


@pytest.mark.parametrize("key", ["", "two words", "k" * 257])
def test_a_key_is_one_word(client: httpx.Client, key: str) -> None:
    answer = client.post("/topics/keyed", json={"msg": 1}, headers={"idempotency-key": key})
    assert answer.status_code == 400


def test_a_key_is_the_id_of_one_event(client: httpx.Client) -> None:
    many = client.post("/topics/keyed", content='{"msg":1}\n{"msg":2}', headers={"idempotency-key": "k"})
    other = client.post("/topics/keyed", json={"id": "other", "msg": 1}, headers={"idempotency-key": "k"})
    assert (many.status_code, other.status_code) == (400, 400)
    client.post("/topics/keyed", json={"msg": 1}, headers={"idempotency-key": "k"})
    assert [event["id"] for event in lines_of(client.get("/topics/keyed"))] == ["k"]
