"""The operating system notices clients whose machine is gone, and leaves clients alone that may read slowly."""

import socket

import anyio
import pytest
from anyio.abc import SocketAttribute

from broker.lost_peers import LOST_AFTER_S, watch_client

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has TCP_USER_TIMEOUT"),
]


@pytest.mark.parametrize(
    ("stalled_s", "timeout_s"), [(1.0, LOST_AFTER_S), (600.0, 600.0), (1e9, (2**31 - 1) / 1000)], ids=str
)
async def test_a_client_may_stop_reading_for_as_long_as_the_broker_allows(stalled_s: float, timeout_s: float) -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listeners:
        port = listeners.extra(SocketAttribute.local_port)
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            watch_client(stream, stalled_s)
            connection = stream.extra(SocketAttribute.raw_socket)
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == timeout_s * 1000
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
