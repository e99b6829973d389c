"""The port of the metrics, and clients that misuse it."""

import http.client
import socket
import struct
import time
from contextlib import ExitStack

import pytest

from demo.ports import free_port
from tweetwire.runtime import metrics_port
from tweetwire.runtime.metrics_port import CONNECTIONS_MAX, HEAD_BYTES_MAX, serve_metrics_on


@pytest.fixture(scope="module")
def port() -> int:
    found = free_port()
    serve_metrics_on("127.0.0.1", found, ["broker.example"])
    return found


def status(port: int, host: str | None = None) -> int:
    """Ask for the metrics by a name, and return the status of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/metrics", headers={} if host is None else {"Host": host})
    return connection.getresponse().status


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        (None, 200),
        ("localhost:9600", 200),
        ("[::1]:9600", 200),
        ("Broker.Example", 200),
        ("evil.example", 403),
        ("", 403),
        ("[", 403),
    ],
)
def test_only_addresses_and_names_of_ours_are_answered(port: int, host: str | None, wanted: int) -> None:
    assert status(port, host) == wanted


def test_connections_that_send_half_a_request_do_not_keep_others_out(port: int) -> None:
    with ExitStack() as stack:
        for _ in range(4 * CONNECTIONS_MAX):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
            half.sendall(b"GET /metr")
        assert status(port) == 200


def test_a_half_sent_request_is_ended_in_time(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_port, "CONNECTION_S", 0.1)
    with socket.create_connection(("127.0.0.1", port), 5) as half:
        half.sendall(b"GET /metr")
        assert half.recv(1) == b""


def test_a_head_that_is_too_long_is_not_read_to_its_end(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(
            b"GET /metrics HTTP/1.1\r\n" + b"X: %s\r\n" % (b"y" * HEAD_BYTES_MAX) + b"Host: localhost\r\n\r\n"
        )
        assert b"403" in connection.recv(65536).split(b"\r\n")[0]


def test_resets_do_not_end_the_server(port: int) -> None:
    for _ in range(300):
        connection = socket.create_connection(("127.0.0.1", port), 5)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    deadline = time.monotonic() + 10
    while status(port) != 200:
        assert time.monotonic() < deadline
