"""Measure the limits of the machine, as ceilings for the broker's figures."""

import os
import socket
import tempfile
import time
from multiprocessing import get_context

__all__ = ["ping_pongs_per_second", "synced_bytes_per_second"]

_WRITE_BYTES = 1 << 20


def synced_bytes_per_second(total: int) -> float:
    """Return the bytes a second of plain 1 MiB writes, each followed by fdatasync, on the disk that the broker uses."""
    block = os.urandom(_WRITE_BYTES)
    rounds = max(8, total // _WRITE_BYTES)
    with tempfile.TemporaryFile(prefix="tweetwire-bench-", dir=".") as file:
        began = time.perf_counter()
        for _ in range(rounds):
            os.write(file.fileno(), block)
            os.fdatasync(file.fileno())
        return rounds * _WRITE_BYTES / (time.perf_counter() - began)


def ping_pongs_per_second(rounds: int = 5000) -> float:
    """Return how often a second a short line and a 200-byte reply pass between two processes with blocking sockets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = get_context("fork").Process(target=_answer, args=(listener,))
        process.start()
        with socket.create_connection(listener.getsockname()) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            began = time.perf_counter()
            for _ in range(rounds):
                connection.sendall(b"ack bench @1\n")
                connection.recv(4096)
            took = time.perf_counter() - began
        process.join()
    return rounds / took


def _answer(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while connection.recv(4096):
        connection.sendall(b"x" * 200)
