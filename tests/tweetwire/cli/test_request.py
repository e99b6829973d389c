"""``request`` on a real broker: the reply, its forms, and a request without one."""

import json
import threading
from collections.abc import Iterator

import pytest

from tests.support.commands import Tweetwire
from tests.support.processes import BrokerProcess
from tweetwire import SyncClient


@pytest.fixture
def responder(shared_broker: BrokerProcess, topic: str) -> Iterator[None]:
    """A responder that returns the message of one request, with its key and its priority."""
    with SyncClient(shared_broker.address, name="responder") as client:
        subscription = client.subscribe(topic, as_="s", create=True)

        def answer() -> None:
            (event,) = subscription.take(30)
            client.reply(event, [event.decode(), event.key or None, event.priority])
            subscription.ack([event])

        thread = threading.Thread(target=answer)
        thread.start()
        yield
        thread.join()


@pytest.mark.usefixtures("responder")
def test_the_payload_of_the_reply_is_written(tweetwire: Tweetwire, topic: str) -> None:
    out = tweetwire("request", topic, '{"n":"☂"}', "--key", "k", "--priority", 3, "--timeout", "20s").out
    assert out == '[{"n":"☂"},"k",3]\n'


@pytest.mark.usefixtures("responder")
def test_the_whole_reply_is_written_as_it_is_stored(
    tweetwire: Tweetwire, shared_client: SyncClient, topic: str
) -> None:
    out = tweetwire("request", topic, "null", "--id", "r-7", "--json", "--timeout", "20s").out
    reply = json.loads(out)
    assert (reply["topic"], reply["parent"]) == ("replies", "r-7")
    (line,), _ = shared_client.read_lines("replies", reply["offset"], limit=1)
    assert json.loads(line) == reply


def test_no_reply_ends_with_one_sentence_and_status_2(tweetwire: Tweetwire, topic: str) -> None:
    done = tweetwire("request", topic, "1", "--timeout", "200ms", status=2)
    assert done.errors == f"tweetwire request: no reply within 200ms; is a responder of {topic} running?\n"
    assert done.out == ""


def test_a_payload_that_is_not_json_is_refused(tweetwire: Tweetwire, topic: str) -> None:
    assert "'hello' is not JSON" in tweetwire("request", topic, "hello", status=2).errors
