"""What a program says at its start of a broker that is none, or that does not let it in."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import BrokerUnreachable
from broker.errors import StartError
from broker.login import Login
from spark import link
from tests.broker.scripted import scripted_broker
from tests.processes import BrokerProcess

pytestmark = pytest.mark.stack


@pytest.fixture
def closing() -> Iterator[str]:
    """The address of something that hangs up at once."""
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


def test_what_hangs_up_at_the_greeting_is_no_broker(closing: str) -> None:
    with pytest.raises(BrokerUnreachable, match=f"no broker answers at {closing} .*does not greet as a broker does"):
        link.see_broker(Login(closing), within_s=0.2)


def test_a_broker_that_wants_a_token_is_one_sentence(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text("users = []")
    with (
        BrokerProcess(tmp_path / "broker", "--users", users) as broker,
        pytest.raises(StartError, match=r"the broker at .* refuses: unauthenticated"),
    ):
        link.see_broker(Login(broker.address))


def test_a_broker_that_is_busy_is_away_and_refuses_nobody() -> None:
    with (
        scripted_broker(lambda _: b"-ERR too_many connections\n") as address,
        pytest.raises(BrokerUnreachable, match=r"too_many connections"),
    ):
        link.see_broker(Login(address), within_s=0)
