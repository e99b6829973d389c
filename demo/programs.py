"""What a program of the stack is to its supervisor, and what became of it."""

import signal
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from msgspec import Struct

__all__ = ["READY", "Death", "Program", "State", "backoff_s", "is_explained", "say_status"]

READY = r"ready on ([^\s\"]+)"
"""The line by which every program of ours says that it serves, in a log of JSON lines and of text alike."""

_BACKOFF_FIRST_S = 0.25
_BACKOFF_MOST_S = 8.0
_CANNOT_START = 2
_SENT_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


class State(Enum):
    """Where a program is between its start and its end."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    ENDED = "ended"
    STOPPED = "stopped"


class Program(Struct, frozen=True, kw_only=True):
    """A command line and what its supervisor must know of it.

    `ready` is a regular expression that its log matches once it serves. It starts when all that it `needs` (names of
    others) are ready. `log` is where it writes its log itself; else the supervisor gives it a file. `prepare` runs in a
    thread once the log matched and before the program counts as ready. `may_end` says that an end with status 0 is the
    way it tells that all is done. `stop_within_s` is its time to end in order before it is killed. `address` is where
    it listens, where `ready` has no group that tells.
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
    """An end that nobody had asked for; `at` is the time in seconds since 1970."""

    at: float
    status: int
    reason: str
    is_explained: bool


def say_status(status: int) -> str:
    """Word an exit status as `subprocess` gives it."""
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def is_explained(status: int, is_need_away: bool) -> bool:
    """Tell whether a death has its cause outside the program: somebody's signal, or a server away that it needs."""
    return -status in _SENT_FROM_OUTSIDE or (status == _CANNOT_START and is_need_away)


def backoff_s(deaths_in_a_row: int) -> float:
    """Return the seconds to wait before the next start: a quarter of a second, doubling, at most 8."""
    return min(_BACKOFF_FIRST_S * 2.0 ** (deaths_in_a_row - 1), _BACKOFF_MOST_S)
