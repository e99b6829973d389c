"""A real server under attack: its process, its ports, its memory, and the victim (a client that pings during the attack)."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, NamedTuple

from demo.ports import free_port
from tests.hostile.victim import Pings, Victim
from tests.support.certificates import files_of, make_certificates
from tests.support.processes import BrokerProcess, Server

__all__ = ["HELLO", "Kind", "Measured", "Target", "broker_target", "ingester_target", "measured"]

Kind = Literal["open", "guarded", "source", "tls", "http", "ingester"]
"""The kinds of servers: a broker without users, with users, event source, TLS, HTTP; and the ingester's telnet port."""

TOKEN: Final = "a-token-for-the-tests"
HELLO: Final = f"hello honest token={TOKEN}"
BASELINE_PINGS: Final = 100


class Target(NamedTuple):
    """A running server with its victim. `ports` are those of its other listeners, by name."""

    server: Server
    ports: dict[str, int]
    victim: Victim

    @property
    def port(self) -> int:
        """The port that accepts lines without TLS."""
        return self.server.port

    @property
    def is_running(self) -> bool:
        """Whether the process that was started has not ended."""
        return self.server.is_running

    @property
    def peak_bytes(self) -> int:
        """The most resident memory since `forget_peak`."""
        return 1024 * int(self._status().split("VmHWM:")[1].split()[0])

    def forget_peak(self) -> None:
        """Reset the peak to the memory that is resident now."""
        Path(f"/proc/{self.server.pid}/clear_refs").write_text("5")

    def _status(self) -> str:
        return Path(f"/proc/{self.server.pid}/status").read_text()


class Measured(NamedTuple):
    """The number of steps of an attack, the victim's pings before and during it, and the peak of resident memory."""

    done: int
    before: Pings
    during: Pings
    peak_bytes: int


def measured(target: Target, attack: Callable[[Target], int]) -> Measured:
    """Run an attack and watch the victim and the memory. Fails if the process ends or the victim is cut off."""
    target.victim.pings()
    before = target.victim.pings(BASELINE_PINGS)
    target.forget_peak()
    try:
        done = attack(target)
    finally:
        assert target.is_running, target.server.log()[-2000:]
    during = target.victim.pings()
    return Measured(done, before, during, target.peak_bytes)


@contextmanager
def broker_target(kind: Kind, folder: Path) -> Iterator[Target]:
    """Start a broker of a kind, with a victim beside it."""
    metrics = free_port()
    flags: list[object] = ["--metrics-port", metrics]
    ports = {"metrics": metrics}
    if kind == "guarded":
        users = folder / "users.toml"
        users.write_text(_user("honest") + 'publish = ["*"]\nsubscribe = ["*"]\n')
        flags += ["--users", users]
    elif kind == "source":
        ports |= {"source": free_port(), "source_clients": free_port()}
        flags += ["--event-source", "--event-source-port", ports["source"]]
        flags += ["--event-source-client-port", ports["source_clients"]]
    elif kind == "http":
        ports["http"] = free_port()
        flags += ["--http-port", ports["http"]]
    elif kind == "tls":
        flags += files_of(make_certificates(folder), "server")[:2]
    certificate = str(folder / "ca.pem") if kind == "tls" else ""
    with (
        BrokerProcess(folder / "broker", *flags) as server,
        Victim(server.port, "ping", HELLO if kind == "guarded" else "", certificate) as victim,
    ):
        yield Target(server, ports, victim)


@contextmanager
def ingester_target(folder: Path, mongo_url: str) -> Iterator[Target]:
    """Start an ingester that waits for its source, with a victim at its telnet port."""
    address = f"http://127.0.0.1:{free_port()}/tweets/1"
    flags = ("--mongo-url", mongo_url, "--database", "hostile", "--source", address, "--broker", "127.0.0.1:1")
    with (
        Server("sse_ingest", folder / "sse_ingest.log", *flags, folder=folder) as server,
        Victim(server.port, "is-there-anybody") as victim,
    ):
        yield Target(server, {}, victim)


def _user(name: str) -> str:
    words = [sys.executable, "-m", "broker.users", name]
    made = subprocess.run(words, input=f"{TOKEN}\n", capture_output=True, text=True, check=True).stdout
    return made.partition("publish")[0]
