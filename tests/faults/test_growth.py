"""Endless redelivery does not let the broker's files grow without a limit."""

import json
import os
import socket
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import IO

from bench.wire import connect
from tests.support.processes import BrokerProcess

NACKS = int(os.environ.get("TWEETWIRE_TEST_NACKS", "4000"))
WORDS_BYTES = max(50, (24 << 20) // NACKS)
BOUND_BYTES = 20 << 20
IDLE_S = float(os.environ.get("TWEETWIRE_TEST_IDLE", "3"))


def test_one_event_that_is_nacked_repeatedly_does_not_make_files_grow(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--reserve-bytes", "1MiB") as broker:
        with closing(connect(broker.port)) as connection, connection.makefile("rb") as lines:
            connection.sendall(b'hello nacker quiet\nsub t as=s strikes=none create\npub t {"id":"1","msg":1}\n')
            largest = nack_all(connection, lines, tmp_path)
        assert largest < BOUND_BYTES < WORDS_BYTES * NACKS
        before = size_of(tmp_path)
        time.sleep(IDLE_S)
        assert size_of(tmp_path) <= before + (1 << 20)
        broker.kill()
        broker.start()
        with closing(connect(broker.port)) as connection, connection.makefile("rb") as lines:
            connection.sendall(b"sub t as=s\n")
            event = next(json.loads(line) for line in lines if line.startswith(b"{"))
        # The lost connection also counted as a failed try.
        assert event["try"] == NACKS + 2


def nack_all(connection: socket.socket, lines: IO[bytes], folder: Path) -> int:
    """Nack the event at each delivery. Return the largest size of the folder in bytes."""
    nack = b'nack t @0 "%b"\n' % (b"x" * WORDS_BYTES)
    largest = nacked = 0
    while nacked < NACKS:
        line = lines.readline()
        assert line[:1] in (b"+", b"{"), line
        if line.startswith(b"{"):
            nacked += 1
            connection.sendall(nack)
            if nacked % 100 == 0:
                largest = max(largest, size_of(folder))
    return largest


def size_of(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        # A snapshot may have been renamed and an old journal removed meanwhile.
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total
