"""No connection ends a listener, whatever happens to the connection between its accept and its first line."""

import re
import socket
from collections.abc import Callable
from errno import ECONNABORTED, EMFILE
from pathlib import Path
from typing import cast

import anyio
import pytest
from anyio.abc import Listener, SocketStream
from structlog.testing import capture_logs

from tests.broker.gateways.event_source.maze import Gateway
from tests.support.certificates import files_of
from tests.support.processes import BrokerProcess, Process
from tests.support.resets import reset_while_stopped
from tweetwire import SyncClient
from tweetwire.runtime.listening import accept_forever, listen

pytestmark = pytest.mark.anyio


def test_connections_that_are_reset_before_they_are_accepted_end_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "b") as broker:
        for _ in range(3):
            reset_while_stopped(broker.pid, broker.port)
        with SyncClient(broker.address) as client:
            client.ping()
        assert "Traceback" not in broker.log()


def test_connections_that_are_reset_at_a_tls_port_end_nothing(tmp_path: Path, certificates: Path) -> None:
    with BrokerProcess(tmp_path / "b", *files_of(certificates, "server")[:2]) as broker:
        for _ in range(3):
            reset_while_stopped(broker.pid, broker.port)
        with socket.create_connection(("127.0.0.1", broker.port), 30) as person:
            person.sendall(b"topics\r\n")
            assert person.recv(100) == b"-ERR forbidden this port speaks TLS\n"
        assert "Traceback" not in broker.log()


@pytest.mark.parametrize("port_of", [lambda gateway: gateway.source_port, lambda gateway: gateway.client_port])
def test_connections_that_are_reset_at_the_ports_of_the_event_source_end_nothing(
    tmp_path: Path, port_of: Callable[[Gateway], int]
) -> None:
    with Gateway(tmp_path / "b", "--event-source") as gateway:
        for _ in range(3):
            reset_while_stopped(gateway.pid, port_of(gateway))
        with gateway.clients("1") as (client,), gateway.source() as source:
            source.send(["1|B"])
            assert client.lines(1) == ["1|B"]
        assert "Traceback" not in gateway.log()


class Failing:
    """A listener whose `accept` raises each of `errors` in turn, and then waits forever."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.has_failed = anyio.Event()

    async def accept(self) -> SocketStream:
        await anyio.lowlevel.checkpoint()
        if self._errors:
            raise self._errors.pop(0)
        self.has_failed.set()
        await anyio.sleep_forever()
        raise AssertionError


@pytest.mark.parametrize(
    "error", [OSError(EMFILE, "Too many open files"), OSError(ECONNABORTED, "aborted"), RuntimeError("of the loop")]
)
async def test_errors_of_accept_are_logged_once_and_accepting_continues(error: Exception) -> None:
    async def handle(_: SocketStream) -> None:
        raise AssertionError

    listener = Failing(error, error, error)
    with capture_logs() as logs, anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept_forever, cast(Listener[SocketStream], listener), handle, tasks)
            await listener.has_failed.wait()
            tasks.cancel_scope.cancel()
    assert [one["log_level"] for one in logs] == ["warning"]


async def test_an_exception_of_a_handler_ends_only_its_connection() -> None:
    async def handle(stream: SocketStream) -> None:
        if await stream.receive() == b"bug":
            raise AttributeError("a bug")
        await stream.send(b"served")

    with capture_logs() as logs, anyio.fail_after(30):
        async with await listen("127.0.0.1", 0, "--port") as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(accept_forever, listener, handle, tasks)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            async with await anyio.connect_tcp("127.0.0.1", port) as first:
                await first.send(b"bug")
                with pytest.raises(anyio.EndOfStream):
                    await first.receive()
            async with await anyio.connect_tcp("127.0.0.1", port) as second:
                await second.send(b"hello")
                assert await second.receive() == b"served"
            tasks.cancel_scope.cancel()
    assert [one["event"] for one in logs] == ["a bug ended a connection"]


def test_two_colons_stand_for_all_addresses_of_ipv4_too(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    words = (
        "broker",
        "--host",
        "::",
        "--port",
        "0",
        "--metrics-port",
        "0",
        "--log-json",
        "--data-dir",
        tmp_path / "data",
    )
    with Process(log, *words) as process:
        port = int(re.findall(r"ready on :::(\d+)", process.log())[0])
        for address in ("127.0.0.1", "::1"):
            with socket.create_connection((address, port), 10) as connection:
                assert connection.recv(4) == b"+OK "
