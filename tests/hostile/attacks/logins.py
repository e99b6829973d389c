"""Attacks without a login, and by wrong logins."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from tests.hostile.attacks.attack import Attack, connect, flood
from tests.hostile.target import Target

__all__ = ["ATTACKS"]

PARALLEL: Final = 60


def wrong_logins(target: Target, size: float) -> int:
    """Send `hello` with a wrong token repeatedly: twice on each of 60 connections at once."""
    rounds = max(1, int(10 * size))
    with ThreadPoolExecutor(PARALLEL) as threads:
        return sum(threads.map(lambda _: _two_wrong_logins(target.port), range(PARALLEL * rounds)))


def _two_wrong_logins(port: int) -> int:
    done = 0
    with connect(port) as connection, connection.makefile("rb") as incoming, suppress(ConnectionError):
        incoming.readline()
        for _ in range(2):
            connection.sendall(b"hello honest token=wrong\n")
            if not incoming.readline():
                break
            done += 1
    return done


def lines_before_the_login(target: Target, size: float) -> int:
    """Before any login, send malformed events, which a broker would store in `rejected_lines`."""
    lines = max(1000, int(500_000 * size))
    flood(target.port, b'pub t {"id":1}\nnonsense\n' * (lines // 2), is_read=True, seconds=60)
    return lines


ATTACKS: Final = (
    Attack("wrong logins, 60 at once", "guarded", wrong_logins, "logins"),
    Attack("bad lines before the login", "guarded", lines_before_the_login, "lines"),
)
