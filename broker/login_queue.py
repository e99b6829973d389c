"""The queue of logins whose token waits to be checked.

Checking a token takes about 50 ms and 64 MiB on purpose, and every client can cause it. Logins wait in groups, by the
address of the client and the name that it claims. All names that no user has form one group. Always true:

- the groups have their turns one after the other, so that a group with many logins does not hold up the others;
- within a group the newest login is checked first, so that a user does not wait for an earlier burst of wrong logins;
- if a group is full, its oldest login is given up. If the queue is full, the oldest login of the largest group is;
- after failures, the next check for a name waits for a growing delay. So does the next check for an address, except for
  addresses of this machine.

This module has no I/O and no clock: times are arguments, in seconds.
"""

from collections import OrderedDict
from typing import Final, Generic, NamedTuple, TypeVar

from tweetwire.client.addresses import is_loopback

__all__ = ["LoginGroup", "LoginQueue"]

GROUP_MAX: Final = 64
QUEUE_MAX: Final = 1000
NAME_FREE_FAILURES: Final = 30
"""How many failures of a name cause no delay. So an attacker cannot delay the user of that name by a few wrong logins."""
ADDRESS_FREE_FAILURES: Final = 10
FIRST_DELAY_S: Final = 0.1
NAME_DELAY_MAX_S: Final = 0.5
"""The longest delay. With a longer one, wrong logins by others could keep the user of that name out."""
ADDRESS_DELAY_MAX_S: Final = 5.0
FORGET_AFTER_S: Final = 60.0
KEYS_MAX: Final = 10_000

T = TypeVar("T")


class LoginGroup(NamedTuple):
    """The address and the claimed name of the logins in one group. `name` is None for all names that no user has."""

    address: str
    name: str | None


class _Failures(NamedTuple):
    number: int
    last_at: float


class _Delays:
    """The delays of the next checks, for the keys (names or addresses) that failed most recently."""

    def __init__(self, free_failures: int, delay_max_s: float) -> None:
        self._free_failures = free_failures
        self._delay_max_s = delay_max_s
        self._failures: OrderedDict[str | None, _Failures] = OrderedDict()

    def note_failure(self, key: str | None, now: float) -> None:
        number, last_at = self._failures.pop(key, _Failures(0, now))
        self._failures[key] = _Failures(1 if now - last_at > FORGET_AFTER_S else number + 1, now)
        if len(self._failures) > KEYS_MAX:
            self._failures.popitem(last=False)

    def forget(self, key: str | None) -> None:
        self._failures.pop(key, None)

    def ready_at(self, key: str | None) -> float:
        """Return the time at which the next check for a key may begin."""
        failures = self._failures.get(key)
        if failures is None or failures.number <= self._free_failures:
            return 0.0
        delay_s = FIRST_DELAY_S * 2.0 ** min(failures.number - self._free_failures - 1, 16)
        return failures.last_at + min(delay_s, self._delay_max_s)


class LoginQueue(Generic[T]):
    """The queue of logins that wait to be checked."""

    def __init__(self) -> None:
        self._groups: OrderedDict[LoginGroup, list[T]] = OrderedDict()
        self._by_name = _Delays(NAME_FREE_FAILURES, NAME_DELAY_MAX_S)
        self._by_address = _Delays(ADDRESS_FREE_FAILURES, ADDRESS_DELAY_MAX_S)
        self._count = 0

    def __len__(self) -> int:
        """Return how many logins wait."""
        return self._count

    def add(self, group: LoginGroup, login: T) -> T | None:
        """Add a login. Returns the login that is given up if the group or the queue is full, else None."""
        waiting = self._groups.setdefault(group, [])
        waiting.append(login)
        self._count += 1
        if len(waiting) > GROUP_MAX:
            self._count -= 1
            return waiting.pop(0)
        if self._count > QUEUE_MAX:
            longest = max(self._groups, key=lambda one: len(self._groups[one]))
            return self._take(longest, 0)
        return None

    def discard(self, group: LoginGroup, login: T) -> bool:
        """Remove a login that waits. Returns False if it was already taken or given up."""
        waiting = self._groups.get(group, [])
        if login not in waiting:
            return False
        self._take(group, waiting.index(login))
        return True

    def take(self, now: float) -> T | None:
        """Remove and return the login whose turn it is, None if no login may be checked now."""
        for group in self._groups:
            if self._ready_at(group) <= now:
                self._groups.move_to_end(group)
                return self._take(group, -1)
        return None

    def pause_s(self, now: float) -> float | None:
        """Return the seconds until a login may be checked, None if no login waits."""
        return min((max(self._ready_at(group) - now, 0.0) for group in self._groups), default=None)

    def note_success(self, group: LoginGroup) -> None:
        """Forget the failures of a group's name and address after a correct login."""
        self._by_name.forget(group.name)
        self._by_address.forget(group.address)

    def note_failure(self, group: LoginGroup, now: float) -> None:
        """Count a failure for a group's name, and for its address unless it is one of this machine."""
        self._by_name.note_failure(group.name, now)
        if not is_loopback(group.address):
            self._by_address.note_failure(group.address, now)

    def _ready_at(self, group: LoginGroup) -> float:
        return max(self._by_name.ready_at(group.name), self._by_address.ready_at(group.address))

    def _take(self, group: LoginGroup, index: int) -> T:
        waiting = self._groups[group]
        login = waiting.pop(index)
        self._count -= 1
        if not waiting:
            del self._groups[group]
        return login
