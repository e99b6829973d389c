"""One mongod process of a replica set."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from demo.mongod.binary import find_mongod
from demo.ports import free_port, is_listened_on
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.launching import ProgramProcess, ReadyLine

__all__ = ["MONGOD_READY", "Member"]

MONGOD_READY: Final = r'"Waiting for connections"'
"""The line in mongod's log after which it answers."""


class Member:
    """One mongod process; its data, log and port file are in `data_dir`.

    Args:
        data_dir: the folder of the member.
        port: the port; with 0, the previous port if there is one, else a free port.
        name: the name of the replica set.
        binary: the mongod to run, None to find one.
        oplog_mb: the size of the oplog in MB, which limits how long a change stream can be resumed.
        cache_mb: WiredTiger's cache in MB, at least 256.
        arguments: further arguments of mongod.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        name: str = "rs0",
        binary: Path | None = None,
        oplog_mb: int = 1024,
        cache_mb: int = 256,
        arguments: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self.name = name
        self.log_path = data_dir / "mongod.log"
        self._binary = binary
        self._arguments = [
            *("--oplogSize", str(oplog_mb)),
            *("--wiredTigerCacheSizeGB", f"{max(cache_mb, 256) / 1024:g}"),
            *arguments,
        ]
        self._process: ProgramProcess | None = None
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.port = port or self._last_port() or free_port()
        (data_dir / "port").write_text(f"{self.port}\n")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def argv(self) -> list[str]:
        """The command line, for callers that start the process themselves. Raises StartError if there is no mongod."""
        self._binary = self._binary or find_mongod()
        return [
            *(str(self._binary), "--dbpath", str(self.data_dir), "--replSet", self.name),
            *("--bind_ip", "127.0.0.1", "--port", str(self.port), "--nounixsocket"),
            *("--logpath", str(self.log_path), "--logappend", "--quiet"),
            *("--setParameter", "diagnosticDataCollectionEnabled=false"),
            # Otherwise the last member to stop would wait 15 s for others to catch up with it.
            *("--setParameter", "shutdownTimeoutMillisForSignaledShutdown=500"),
            *self._arguments,
        ]

    @property
    def pid(self) -> int | None:
        """The process id, None if the process is not running."""
        return self._process.pid if self._process is not None and self._process.is_running else None

    def start(self, timeout_s: float = 30.0) -> None:
        """Start the member and wait until it answers. Raises StartError with the reason from its log."""
        if self.pid is not None:
            return
        if is_listened_on(self.port):
            raise StartError(f"port {self.port} on 127.0.0.1 is in use; stop the program that has it or choose another")
        self._process = ProgramProcess(
            self.argv,
            self.log_path,
            find_address=ReadyLine(self.log_path, MONGOD_READY).address,
            start_within_s=timeout_s,
        )
        try:
            self._process.start()
        except StartError as error:
            raise StartError(
                f"mongod at {self.address} did not start: {self._reason()}; see {self.log_path}"
            ) from error

    def kill(self) -> None:
        """End the process as a power cut would (SIGKILL)."""
        if self._process is not None:
            self._process.kill()

    def stop(self, timeout_s: float = 20.0) -> None:
        """End the process in order, or kill it if it does not end in time."""
        if self._process is not None:
            self._process.stop(timeout_s)

    def is_primary(self) -> bool:
        """Whether the member answers and accepts writes."""
        try:
            return bool(self.command("hello").get("isWritablePrimary"))
        except PyMongoError:
            return False

    def command(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Run an administrative command on this member, whatever its state in the set."""
        with _direct(self.address) as client:
            return client.admin.command({name: arguments.pop("value", 1), **arguments})

    def _reason(self) -> str:
        log = self.log_path.read_text(errors="replace")[-20_000:]
        if "DBPathInUse" in log:
            return f"another mongod uses {self.data_dir}; stop it or choose another --data-dir"
        lines = [line for line in log.splitlines() if line and not line.startswith("{")]
        return lines[-1] if lines else "no reason given"

    def _last_port(self) -> int | None:
        try:
            return int((self.data_dir / "port").read_text())
        except (OSError, ValueError):
            return None


def _direct(address: str) -> MongoClient[dict[str, Any]]:
    return MongoClient(f"mongodb://{address}/?directConnection=true", serverSelectionTimeoutMS=1000)
