"""The messages of a program at its start if the address does not belong to a broker, or if the broker refuses the program."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.connector import link
from tests.support.processes import BrokerProcess
from tests.support.scripted_broker import scripted_broker
from tweetwire import BrokerUnreachable
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.login import Login

pytestmark = pytest.mark.stack


@pytest.fixture
def closing() -> Iterator[str]:
    """The address of a server that closes each connection at once."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        thread = threading.Thread(target=hang_up)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_server_that_closes_at_the_greeting_is_not_a_broker(closing: str) -> None:
    with pytest.raises(BrokerUnreachable, match=f"no broker answers at {closing} .*does not greet as a broker does"):
        link.see_broker(Login(closing), within_s=0.2)


def test_a_broker_that_wants_a_token_is_reported_in_one_sentence(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text("users = []")
    with (
        BrokerProcess(tmp_path / "broker", "--users", users) as broker,
        pytest.raises(StartError, match=r"the broker at .* refuses: unauthenticated"),
    ):
        link.see_broker(Login(broker.address))


def test_a_busy_broker_counts_as_away_and_not_as_refusing() -> None:
    with (
        scripted_broker(lambda _: b"-ERR too_many connections\n") as address,
        pytest.raises(BrokerUnreachable, match=r"too_many connections"),
    ):
        link.see_broker(Login(address), within_s=0)
