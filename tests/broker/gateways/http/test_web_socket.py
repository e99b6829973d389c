"""The WebSocket speaks the line protocol, one line a message."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.broker.gateways.http.serving import HttpBroker, basic, http_broker
from tests.support.users import entry

TOKEN = "a-token-for-the-tests"


def open_socket(broker: HttpBroker, path: str = "/ws", **settings: Any) -> ClientConnection:
    opened: ClientConnection = connect(f"ws://127.0.0.1:{broker.http_port}{path}", proxy=None, **settings)
    return opened


def ask(socket: ClientConnection, line: str) -> str:
    socket.send(line)
    return str(socket.recv(30))


def test_a_client_publishes_subscribes_and_acks(shared: HttpBroker) -> None:
    with open_socket(shared) as socket:
        assert str(socket.recv(30)).startswith("+OK tweetwire broker")
        assert ask(socket, 'pub socket {"id":"1","msg":"é"}') == "+OK pub socket 0 synced"
        assert ask(socket, "sub socket as=a from=earliest").startswith("+OK sub socket as=a")
        assert '"msg":"é"' in str(socket.recv(30))
        assert ask(socket, "ack socket @0") == "+OK ack socket 1"
        assert ask(socket, 'pub socket {"id":"2","msg":"' + "x" * 900_000 + '"}').startswith("+OK pub")
        assert len(str(socket.recv(30))) > 900_000
        assert ask(socket, "nonsense").startswith("-ERR unknown_command")
        socket.send("quit")
        with pytest.raises(ConnectionClosed):
            while socket.recv(30):
                pass


def test_a_message_longer_than_a_line_ends_the_connection(shared: HttpBroker) -> None:
    with open_socket(shared) as socket:
        socket.recv(30)
        socket.send("x" * (2 << 20))
        with pytest.raises(ConnectionClosed):
            socket.recv(30)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [("/nope", {}, 404), ("/ws", {"Origin": "https://evil.example"}, 403)],
)
def test_a_foreign_page_opens_no_web_socket(
    shared: HttpBroker, path: str, headers: dict[str, str], status: int
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        open_socket(shared, path, additional_headers=headers)
    assert refused.value.response.status_code == status


def test_users_log_in_with_a_header_or_with_hello(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(entry("ann", TOKEN))
    with http_broker(tmp_path / "broker", "--users", users) as broker:
        with open_socket(broker, additional_headers=basic("ann", TOKEN)) as socket:
            socket.recv(30)
            assert ask(socket, 'pub web {"id":"1","msg":1}') == "+OK pub web 0 synced"
        with open_socket(broker) as socket:
            socket.recv(30)
            assert ask(socket, 'pub web {"id":"1","msg":1}').startswith("-ERR unauthenticated")
            assert ask(socket, f"hello ann token={TOKEN}") == "+OK hello ann"
            assert ask(socket, 'pub web {"id":"1","msg":1}') == "+OK pub web 1 synced"
        with open_socket(broker) as socket:
            socket.recv(30)
            socket.send("x" * 5_000)
            with pytest.raises(ConnectionClosed):
                socket.recv(30)
        with pytest.raises(InvalidStatus):
            open_socket(broker, additional_headers=basic("ann", "wrong"))


def test_a_shutdown_closes_web_sockets(tmp_path: Path) -> None:
    with http_broker(tmp_path / "broker") as broker, open_socket(broker) as socket:
        socket.recv(30)
        os.kill(broker.pid, signal.SIGTERM)
        with pytest.raises(ConnectionClosed):
            socket.recv(30)
        assert broker.wait() == 0
