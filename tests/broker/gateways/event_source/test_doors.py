"""The ports of the event source refuse other protocols, and silent connections do not keep clients out."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
import structlog

from broker.gateways.event_source.doors import Doors
from tests.broker.gateways.event_source.maze import Gateway
from tests.support.waiting import until

FOREIGN = (
    b"POST /events HTTP/1.1\r\nHost: x\r\n\r\n1|B\r\n2|B\r\n",
    b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + b"\n1|B\n" * 20,
)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "broker", "--event-source-silence", "1s") as process:
        yield process


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 60)


def rest_of(connection: socket.socket) -> bytes:
    """Read to the end of the connection, or to its reset."""
    data = b""
    try:
        while received := connection.recv(1000):
            data += received
    except ConnectionResetError:
        pass
    return data


@pytest.mark.parametrize("said", FOREIGN)
def test_http_and_tls_are_not_taken_for_a_source_and_end_no_source(gateway: Gateway, said: bytes) -> None:
    with gateway.clients("1") as (client,):
        with connect(gateway.source_port) as stranger:
            stranger.sendall(said)
            assert rest_of(stranger) == b""
        with gateway.source() as source:
            source.send(["1|P|2|1"])
            assert client.lines(1) == ["1|P|2|1"]
        assert client.rest() == []
    assert gateway.stored() == ["1|P|2|1", None]
    assert gateway.stored("rejected_lines") == []


@pytest.mark.parametrize("said", FOREIGN)
def test_http_and_tls_are_not_taken_for_a_client(gateway: Gateway, said: bytes) -> None:
    with connect(gateway.client_port) as stranger:
        stranger.sendall(said)
        assert rest_of(stranger) == b""
    until(lambda: gateway.said("closed a client of the event source that speaks another protocol"))


def test_a_connection_that_sends_nothing_is_not_a_source(gateway: Gateway) -> None:
    with gateway.clients("1") as (client,):
        for _ in range(3):
            connect(gateway.source_port).close()
        with gateway.source() as source:
            source.send(["1|B"])
            assert client.lines(1) == ["1|B"]


def test_silent_connections_do_not_keep_a_source_out(gateway: Gateway) -> None:
    silent = [connect(gateway.source_port) for _ in range(30)]
    with gateway.clients("1") as (client,), gateway.source() as source:
        source.send(["1|B"])
        assert client.lines(1) == ["1|B"]
    for connection in silent:
        connection.close()


def test_a_source_that_has_become_silent_makes_room_and_its_sequences_continue(gateway: Gateway) -> None:
    with gateway.clients("1") as (client,), gateway.source() as first:
        first.send(["1|B"])
        assert client.lines(1) == ["1|B"]
        with gateway.source() as second:
            second.send(["1|B", "2|B"])
            assert client.lines(1) == ["2|B"]
            assert second.next_due() == 3
    until(lambda: gateway.stored()[-1:] == [None])


def test_a_source_that_continues_sending_keeps_its_turn(gateway: Gateway) -> None:
    with gateway.clients("1") as (client,), gateway.source() as first, gateway.source() as second:
        second.send(["1|P|2|1"])
        ends_at = time.monotonic() + 2.5
        while time.monotonic() < ends_at:
            assert first.next_due() == 1
        first.send(["1|P|1|1"])
        assert client.lines(1) == ["1|P|1|1"]


def test_silent_clients_keep_no_client_out(tmp_path: Path) -> None:
    with Gateway(tmp_path / "broker", "--connections-max", "20") as gateway:
        silent = [connect(gateway.client_port) for _ in range(60)]
        with gateway.clients("1") as (client,), gateway.source() as source:
            source.send(["1|B"])
            assert client.lines(1) == ["1|B"]
        for connection in silent:
            connection.close()


@pytest.mark.anyio
async def test_a_silent_client_that_makes_room_for_another_ends_without_an_error() -> None:
    doors = Doors("127.0.0.1", 0, 0, silence_s=30, clients_max=2)

    async def serve(_: bytes, __: object) -> None:
        await anyio.sleep_forever()

    with anyio.fail_after(10), structlog.testing.capture_logs() as logged:
        async with doors.open(), anyio.create_task_group() as tasks:
            tasks.start_soon(doors.let_in_clients, serve, tasks)
            port = int(doors.addresses[1].split(":")[1])
            async with await anyio.connect_tcp("127.0.0.1", port) as first:
                await anyio.sleep(0.1)
                async with await anyio.connect_tcp("127.0.0.1", port):
                    with pytest.raises(anyio.EndOfStream):
                        await first.receive()
                    await anyio.sleep(0.1)
            tasks.cancel_scope.cancel()
    assert [line for line in logged if line["log_level"] == "error"] == []
