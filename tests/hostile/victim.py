"""``python -m tests.hostile.victim PORT PING HELLO CA``: a well-behaved client that pings all the time and times each answer.

It is a separate process, so that the attacker's Python does not delay it. For each number on its standard input, it waits until
it has made this number of pings, prints a `Pings` as JSON, and begins a new measurement.
"""

import json
import os
import select
import socket
import ssl
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from typing import Final, NamedTuple, Self

__all__ = ["Pings", "Victim"]

PAUSE_S: Final = 0.005
PATIENCE_S: Final = 60.0


class Pings(NamedTuple):
    """The victim's pings since the last report: their number, and the times until their answers in milliseconds."""

    pings: int
    median_ms: float
    worst_ms: float


class Victim:
    """Runs the victim until the end of the block."""

    def __init__(self, port: int, ping: str, hello: str = "", ca: str = "") -> None:
        self._words = [sys.executable, "-m", __spec__.name, str(port), ping, hello, ca]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def pings(self, least: int = 1) -> Pings:
        """Wait until there are at least `least` pings since the last call, and return them. Fails if the connection is lost."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"%d\n" % least)
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the victim lost its connection"
        return Pings(*json.loads(line))


class _Connection:
    def __init__(self, port: int, ca: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        if ca:
            context = ssl.create_default_context(cafile=ca)
            self._socket = context.wrap_socket(self._socket, server_hostname="127.0.0.1")
        self._rest = b""
        self.line()

    def ask(self, line: str) -> str:
        self._socket.sendall(f"{line}\n".encode())
        return self.line()

    def line(self) -> str:
        while b"\n" not in self._rest:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()


def main(port: str, ping: str, hello: str, ca: str) -> None:
    """Ping until standard input ends."""
    with suppress(PermissionError):
        # Measure the server, not the time that this process waits for a core.
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    connection = _Connection(int(port), ca)
    if hello and not (answer := connection.ask(hello)).startswith("+OK"):
        raise SystemExit(answer)
    times: list[float] = []
    wanted = 0
    while True:
        began = time.perf_counter()
        connection.ask(ping)
        times.append((time.perf_counter() - began) * 1000)
        if select.select([sys.stdin], [], [], PAUSE_S)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            wanted = int(line)
        if 0 < wanted <= len(times):
            print(json.dumps([len(times), statistics.median(times), max(times)]), flush=True)
            times.clear()
            wanted = 0


if __name__ == "__main__":
    main(*sys.argv[1:])
