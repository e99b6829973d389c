"""The requests that a dashboard allows. The tests send them like browsers, to a real dashboard without a broker."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from tests.dashboard.programs import DashboardProcess

NOBODY = "127.0.0.1:9"


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardProcess]:
    log_path = tmp_path_factory.mktemp("dashboard") / "dashboard.log"
    with DashboardProcess(NOBODY, log_path, "--allowed-host", "tower.example") as process:
        yield process


@pytest.fixture
def web(dashboard: DashboardProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=dashboard.url, timeout=30) as client:
        yield client


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *[(name, 200) for name in ("localhost:8088", "127.0.0.1:1", "192.168.1.7:8088", "[::1]:8088", "tower.example")],
        *[
            (name, 403)
            for name in ("evil.example", "localhost.evil.example:8088", "", "[::1", "127.0.0.1.evil.example")
        ],
    ],
)
def test_only_requests_with_a_known_host_name_are_answered(web: httpx.Client, host: str, status: int) -> None:
    assert web.get("/", headers={"Host": host}).status_code == status


@pytest.mark.parametrize("path", ["/sign-in", "/sign-out", "/_nicegui_ws/socket.io/?EIO=4&transport=polling&sid=x"])
@pytest.mark.parametrize("origin", [None, "null", "http://[", "https://evil.example", "http://127.0.0.1:1"])
def test_a_request_that_changes_something_must_come_from_our_page(
    web: httpx.Client, path: str, origin: str | None
) -> None:
    headers = {} if origin is None else {"Origin": origin}
    answer = web.post(path, data={"user": "a", "token": "b"}, headers=headers)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_body_has_at_most_16_kib(web: httpx.Client, dashboard: DashboardProcess, *, is_streamed: bool) -> None:
    def post(size: int) -> int:
        body = b"user=a&token=" + b"b" * (size - 13)
        headers = {"Origin": dashboard.url, "Content-Type": "application/x-www-form-urlencoded"}
        return web.post(
            "/sign-in", content=iter([body[:9000], body[9000:]]) if is_streamed else body, headers=headers
        ).status_code

    assert post(16 << 10) == 303
    assert post((16 << 10) + 1) == 413


def test_a_page_elsewhere_does_not_get_a_socket(web: httpx.Client, dashboard: DashboardProcess) -> None:
    path = "/_nicegui_ws/socket.io/?EIO=4&transport=polling"
    assert web.get(path, headers={"Origin": "https://evil.example"}).status_code == 403
    handshake = (
        f"GET /_nicegui_ws/socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: {dashboard.host}\r\n"
        "Origin: https://evil.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    host, port = dashboard.host.split(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(handshake.encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 403")


def test_every_answer_forbids_foreign_frames_and_scripts(web: httpx.Client) -> None:
    for path in ("/", "/sign-in", "/static/dashboard.css", "/nothing-here"):
        policy = web.get(path).headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "default-src 'self'" in policy
        assert "http" not in policy


@pytest.mark.parametrize("then", ["//evil.example", "https://evil.example", "/\\evil.example", "evil.example"])
def test_a_refused_sign_in_leads_nowhere_else(web: httpx.Client, dashboard: DashboardProcess, then: str) -> None:
    data = {"user": "no name\nping", "token": "x", "then": then}
    answer = web.post("/sign-in", data=data, headers={"Origin": dashboard.url})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/sign-in?refused=unknown"
    assert "set-cookie" not in answer.headers


def test_without_a_broker_the_page_is_there_and_waits(web: httpx.Client) -> None:
    assert "asking the broker at 127.0.0.1:9" in web.get("/").text


def test_a_taken_port_is_reported_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "dashboard", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    (sentence,) = done.stderr.splitlines()
    assert f"port {port} on 127.0.0.1 is in use" in sentence


def test_without_nicegui_it_says_what_to_install() -> None:
    code = "import sys, runpy; sys.modules['nicegui'] = None; runpy.run_module('dashboard', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    (sentence,) = done.stderr.splitlines()
    assert "pip install 'tweetwire[dashboard]'" in sentence
