"""Let the operating system detect a peer whose machine or network is gone, without which a connection stays open forever."""

import socket
from typing import NamedTuple

__all__ = ["Keepalive", "set_keepalive"]


class Keepalive(NamedTuple):
    """After how many seconds without data a probe is sent, how often, and how many probes may stay without an answer.

    On Linux, `timeout_ms` decides instead of the number of probes. It is the time without an answer to a probe or to data, and
    also the time for which a live peer may not read.
    """

    idle_s: int
    interval_s: int
    probes: int
    timeout_ms: int


def set_keepalive(connection: socket.socket, keepalive: Keepalive) -> None:
    """Have a connection ended when its peer shows no sign of life."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
    for name, value in zip(names, keepalive, strict=True):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
