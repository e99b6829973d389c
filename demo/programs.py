"""The description of a program for its supervisor, and the record of its deaths."""

import signal
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from msgspec import Struct

from tweetwire.runtime.launching import READY

__all__ = ["Death", "Program", "ProgramState", "is_explained", "say_status"]

_CANNOT_START = 2
_SENT_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


class ProgramState(Enum):
    """The state of a program between its start and its end."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    ENDED = "ended"
    STOPPED = "stopped"


class Program(Struct, frozen=True, kw_only=True):
    """A command line, and the data that its supervisor needs.

    Args:
        name: the program's name.
        argv: the command line.
        ready: a regular expression that matches the log once the program serves; its group, if any, is the address.
        needs: the names of programs that must be ready before this one starts.
        log: the file of the program's own log; None if the supervisor has to give it a file.
        prepare: called in a thread after `ready` matched and before the program counts as ready.
        may_end: whether an exit with status 0 means that the program has done all its work.
        stop_within_s: seconds to end in order before it is killed.
        address: the address it listens on, if `ready` has no group.
    """

    name: str
    argv: tuple[str, ...]
    ready: str = READY
    needs: tuple[str, ...] = ()
    log: Path | None = None
    prepare: Callable[[], None] | None = None
    may_end: bool = False
    stop_within_s: float = 20.0
    address: str = ""


class Death(Struct, frozen=True):
    """An end that the supervisor did not request; `at` is the time in seconds since 1970."""

    at: float
    status: int
    reason: str
    is_explained: bool


def say_status(status: int) -> str:
    """Describe an exit status of `subprocess` in words."""
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def is_explained(status: int, is_need_away: bool) -> bool:
    """Return whether a death has a cause outside the program: a signal, or a server that it needs and cannot reach."""
    return -status in _SENT_FROM_OUTSIDE or (status == _CANNOT_START and is_need_away)
