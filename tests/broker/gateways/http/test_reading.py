"""GET /topics/{topic}: parts of the log, and the address of the next part."""

import threading
import time

import httpx
import pytest

from tests.broker.gateways.http.serving import lines_of


def test_following_the_link_reads_the_whole_log(client: httpx.Client) -> None:
    client.post("/topics/pages", content="\n".join(f'{{"id":"{n}","msg":{n}}}' for n in range(25)))
    address, read = "/topics/pages?from=earliest&limit=10", []
    for _ in range(4):
        answer = client.get(address)
        read += [event["msg"] for event in lines_of(answer)]
        address = answer.links["next"]["url"]
    assert read == list(range(25))
    assert address == "/topics/pages?from=25&limit=10"


def test_a_read_can_wait_for_the_next_event(client: httpx.Client) -> None:
    client.post("/topics/waits", json={"msg": 0})

    def later() -> None:
        time.sleep(0.3)
        client.post("/topics/waits", json={"msg": 1})

    thread = threading.Thread(target=later)
    thread.start()
    assert [event["msg"] for event in lines_of(client.get("/topics/waits?from=1&wait=20s"))] == [1]
    thread.join()


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/topics/absent", 404, "unknown_topic"),
        ("/topics/absent?from=sometime", 400, "bad_arguments"),
        ("/topics/absent?limit=0", 400, "bad_arguments"),
        ("/topics/absent?limit=1&limit=2", 400, "bad_arguments"),
        ("/topics/absent?wait=2h", 400, "bad_arguments"),
        ("/topics/a/b/c", 404, "not_found"),
        ("/" + "x" * 9000, 404, "not_found"),
    ],
)
def test_a_wrong_read_is_refused(client: httpx.Client, path: str, status: int, code: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_another_method_is_refused_with_those_that_exist(client: httpx.Client) -> None:
    answer = client.delete("/topics/x")
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == {"GET", "POST"}
