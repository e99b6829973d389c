"""The check of names and tokens, at a bounded cost.

Checking a token takes about 50 ms and 64 MiB on purpose. Always true:

- at most `THREADS` tokens are checked at a time, in separate threads, in the order of the `LoginQueue`;
- logins with the same name and token share one check;
- a correct token is remembered as a keyed hash in memory until the users change. So a client that connects again
  does not wait;
- the bytes that all waiting connections hold in memory are at most `HELD_BYTES_MAX`;
- a login that has waited for `WAIT_S` seconds, or for which there is no room, is refused with ``busy``.
"""

import secrets
from collections import OrderedDict
from hashlib import blake2b
from time import monotonic
from typing import Final, NamedTuple, Protocol

import anyio
import structlog
from anyio import to_thread

from broker.core import Access
from broker.login_queue import LoginGroup, LoginQueue
from tweetwire.protocol.errors import Refusal

__all__ = ["Logins", "Users"]

THREADS: Final = 2
WAIT_S: Final = 5.0
REMEMBERED_MAX: Final = 10_000
HELD_BYTES_MAX: Final = 32 << 20

logger = structlog.stdlib.get_logger()


class Users(Protocol):
    """The users that may connect. An object of this type never changes."""

    def knows(self, name: str) -> bool:
        """Return whether there is a user with this name."""
        ...

    def access_of(self, name: str) -> Access | None:
        """Return the access of the user with this name, None if there is no such user."""
        ...

    def identify(self, name: str, token: str) -> Access | None:
        """Return the access of a user, None if name and token do not match. Call it in a thread, since it is slow."""
        ...


class _Key(NamedTuple):
    group: LoginGroup
    digest: bytes


class _Check:
    """The check of one name and token, for all logins that wait for it."""

    __slots__ = ("access", "is_done", "is_given_up", "key", "name", "token", "waiting")

    def __init__(self, key: _Key, name: str, token: str) -> None:
        self.key = key
        self.name = name
        self.token = token
        self.access: Access | None = None
        self.is_given_up = False
        self.is_done = anyio.Event()
        self.waiting = 0

    def give_up(self) -> None:
        self.is_given_up = True
        self.is_done.set()


class Logins:
    """Checks logins: `identify` waits for the check of one login, `run` does the checks. `users` is None without users."""

    def __init__(self, users: Users | None) -> None:
        self._users = users
        self._secret = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, Access] = OrderedDict()
        self._checks: dict[_Key, _Check] = {}
        self._queue: LoginQueue[_Check] = LoginQueue()
        self._held_bytes = 0
        self._has_new = anyio.Event()
        self._threads = anyio.CapacityLimiter(THREADS)

    @property
    def users(self) -> Users | None:
        """The users that may connect, None if the broker has no users."""
        return self._users

    @users.setter
    def users(self, users: Users | None) -> None:
        self._users = users
        self._remembered.clear()

    async def identify(self, name: str, token: str, address: str, held_bytes: int = 0) -> Access | None:
        """Return the access of a user, None if name and token do not match. Raises Refusal ``busy``.

        `address` is the client's address, in the form that the connection limits use. `held_bytes` is how many bytes the
        connection holds in memory while the login waits.
        """
        users = self._users
        if users is None:
            raise RuntimeError("there are no users")
        digest = blake2b(f"{name}\0{token}".encode(), key=self._secret).digest()
        remembered = self._remember(digest)
        if remembered is not None:
            return remembered
        if self._held_bytes + held_bytes > HELD_BYTES_MAX:
            raise _busy()
        group = LoginGroup(address, name if users.knows(name) else None)
        check = self._joined(_Key(group, digest), name, token)
        self._held_bytes += held_bytes
        try:
            with anyio.move_on_after(WAIT_S):
                await check.is_done.wait()
        finally:
            self._held_bytes -= held_bytes
            self._leave(check)
        if check.is_given_up or not check.is_done.is_set():
            raise _busy()
        if users is not self._users:
            return await self.identify(name, token, address, held_bytes)
        return check.access

    async def run(self) -> None:
        """Check tokens forever."""
        async with anyio.create_task_group() as workers:
            for _ in range(THREADS):
                workers.start_soon(self._work)

    def _joined(self, key: _Key, name: str, token: str) -> _Check:
        check = self._checks.get(key)
        if check is None:
            check = self._checks[key] = _Check(key, name, token)
            given_up = self._queue.add(key.group, check)
            if given_up is not None:
                self._checks.pop(given_up.key, None)
                given_up.give_up()
            self._has_new.set()
        check.waiting += 1
        return check

    def _leave(self, check: _Check) -> None:
        check.waiting -= 1
        if not check.waiting and self._queue.discard(check.key.group, check):
            self._checks.pop(check.key, None)

    async def _work(self) -> None:
        while True:
            check = await self._next()
            try:
                check.access = await self._answer(check)
            except Exception:
                logger.exception("cannot check a token", name=check.name)
                check.give_up()
            self._checks.pop(check.key, None)
            check.is_done.set()

    async def _next(self) -> _Check:
        while True:
            now = monotonic()
            check = self._queue.take(now)
            if check is not None:
                return check
            # All workers wait for the same event, so it must not be replaced while a worker waits.
            if self._has_new.is_set():
                self._has_new = anyio.Event()
            with anyio.move_on_after(self._queue.pause_s(now)):
                await self._has_new.wait()

    async def _answer(self, check: _Check) -> Access | None:
        digest, group = check.key.digest, check.key.group
        while (remembered := self._remember(digest)) is None:
            users = self._users
            if users is None:
                return None
            access = await to_thread.run_sync(users.identify, check.name, check.token, limiter=self._threads)
            if users is not self._users:
                # The users were replaced during the check, so check with the new ones.
                continue
            if access is None:
                self._queue.note_failure(group, monotonic())
                return None
            self._queue.note_success(group)
            self._remembered[digest] = access
            if len(self._remembered) > REMEMBERED_MAX:
                self._remembered.popitem(last=False)
        return remembered

    def _remember(self, digest: bytes) -> Access | None:
        access = self._remembered.get(digest)
        if access is not None:
            self._remembered.move_to_end(digest)
        return access


def _busy() -> Refusal:
    return Refusal("busy", "many logins wait to be checked; try again in a moment")
