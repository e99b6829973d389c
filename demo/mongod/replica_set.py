"""A replica set of mongods that run on this machine."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pymongo.errors import AutoReconnect, OperationFailure

from demo.mongod.member import Member
from tweetwire.protocol.errors import StartError

__all__ = ["ReplicaSet"]

_NOT_INITIATED = 94
_UNAUTHORIZED = 13
_ALREADY_INITIATED = 23
_PAUSE_S = 0.02


class ReplicaSet:
    """A replica set of `members` mongods in `data_dir`. The same directory gives the same set again.

    `ports` are the ports of the first members. A member whose port is 0 or missing takes its previous port, or a free one.
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
        """Start the members that are not running, and wait for a primary."""
        for member in self.members:
            member.start()
        self.configure()
        self.wait_for_primary(timeout_s)

    def wait_for_primary(self, timeout_s: float = 60.0) -> Member:
        """Wait until a member is primary and accepts writes, and return it. Raises StartError after `timeout_s` seconds."""
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
        """End all members in order, the primary last, so that no election starts meanwhile."""
        for member in sorted(self.members, key=self._is_primary):
            member.stop()

    def configure(self) -> None:
        """Initiate the set, or update its ports in the configuration. Do nothing if neither is needed."""
        first = self.members[0]
        wanted = [{"_id": n, "host": member.address} for n, member in enumerate(self.members)]
        try:
            config = first.command("replSetGetConfig")["config"]
        except OperationFailure as error:
            # With a key file, a set that is not initiated refuses this command as unauthorized.
            if error.code not in {_NOT_INITIATED, _UNAUTHORIZED}:
                raise
            with _suppress_codes(_ALREADY_INITIATED, _UNAUTHORIZED):
                settings = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 500}
                first.command("replSetInitiate", value={"_id": self.name, "members": wanted, "settings": settings})
            return
        if [member["host"] for member in config["members"]] != [member["host"] for member in wanted]:
            # The data moved to other ports, so no member finds itself in the old configuration; only force works.
            config["version"] += 1
            config["members"] = [
                {**old, "host": new["host"]} for old, new in zip(config["members"], wanted, strict=True)
            ]
            first.command("replSetReconfig", value=config, force=True)

    def _has_primary(self) -> bool:
        return any(self._is_primary(member) for member in self.members)

    def _is_primary(self, member: Member) -> bool:
        return member.pid is not None and member.is_primary()


@contextmanager
def _suppress_codes(*codes: int) -> Iterator[None]:
    """Ignore a command's failure with one of these codes."""
    try:
        yield
    except OperationFailure as error:
        if error.code not in codes:
            raise


def _until(condition: Callable[[], bool], timeout_s: float, failure: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise StartError(failure)
        time.sleep(_PAUSE_S)
