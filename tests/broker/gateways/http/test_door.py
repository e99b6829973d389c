"""Connections that are silent, slow or too many do not keep others out."""

import socket
import time
from pathlib import Path

from tests.broker.gateways.http.serving import HttpBroker, http_broker
from tests.support.processes import BrokerProcess


def connect(broker: HttpBroker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.http_port), 30)


def ends_within(connection: socket.socket, seconds: float) -> bool:
    """Whether the gateway ends a connection in time."""
    connection.settimeout(seconds)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


def test_without_the_flag_there_is_no_port(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        assert not broker.logged("HTTP gateway is listening")


def test_a_silent_connection_and_a_half_sent_head_are_ended(tmp_path: Path) -> None:
    flags = ("--greeting-timeout", "1s")
    with http_broker(tmp_path / "broker", *flags) as broker, connect(broker) as silent, connect(broker) as half:
        half.sendall(b"GET /topics HTTP/1.1\r\nHost: localhost\r\nX: ")
        assert ends_within(silent, 10)
        assert ends_within(half, 10)


def test_a_later_head_that_never_ends_is_cut(tmp_path: Path) -> None:
    with http_broker(tmp_path / "broker") as broker, connect(broker) as connection:
        connection.sendall(b"GET /topics/x HTTP/1.1\r\nHost: localhost\r\n\r\nGET /topics/x HTTP/1.1\r\nHost: ")
        deadline = time.monotonic() + 40
        connection.settimeout(0.5)
        ended = False
        while not ended and time.monotonic() < deadline:
            try:
                ended = not connection.recv(65536)
                # A byte from time to time does not make the time longer.
                connection.sendall(b"a")
            except TimeoutError:
                connection.sendall(b"a")
            except ConnectionError:
                ended = True
        assert ended


def test_a_connection_above_the_limit_gets_an_error(tmp_path: Path) -> None:
    with http_broker(tmp_path / "broker", "--connections-per-address", 2) as broker:
        request = b"GET /topics/x HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with connect(broker) as first, connect(broker) as second:
            for connection in (first, second):
                connection.sendall(request)
                assert connection.recv(4096).startswith(b"HTTP/1.1 404")
            with connect(broker) as third:
                assert third.recv(4096).startswith(b"HTTP/1.1 503")
        deadline = time.monotonic() + 20
        while True:
            with connect(broker) as next_one:
                next_one.sendall(request)
                if next_one.recv(4096).startswith(b"HTTP/1.1 404"):
                    break
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_nonsense_and_a_head_without_end_are_refused(tmp_path: Path) -> None:
    with http_broker(tmp_path / "broker") as broker:
        for sent in (b"\x00\xff" * 100, b"pub web {}\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000):
            with connect(broker) as connection:
                connection.sendall(sent)
                assert ends_within(connection, 20)
        with broker.client() as client:
            assert client.get("/topics/x").status_code == 404
        assert not [line for line in broker.log().splitlines() if "Traceback" in line]
