"""Limit the connections, so that silent connections cannot keep other clients out.

A connection is a stranger from its accept, including its TLS handshake, until `AdmissionPlace.keep` is called. The caller
does so once the client has logged in, or on a broker without users, once it has sent its first command. Always true:

- There are at most `connections` places. Strangers have at most `STRANGERS_SHARE` of them, and at most `strangers`.
- If a new stranger finds no free place, the oldest stranger of the address with the most strangers is closed for it.
- A stranger is closed after `patience_s` seconds.
- An address has at most `per_address` places. By default this does not apply to loopback addresses.

This module does no I/O: connections are closed by a callback. Times are arguments, in seconds of a monotonic clock.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from enum import Enum
from typing import Final

from msgspec import Struct

from tweetwire.client.addresses import address_group, is_loopback
from tweetwire.protocol.errors import Refusal

__all__ = ["STRANGERS_MAX", "Admission", "AdmissionLimits", "AdmissionPlace", "Closing"]

STRANGERS_SHARE: Final = 0.8
STRANGERS_MAX: Final = 2000
"""The most strangers. Each takes about 11 KB, and to remove all of them together must not take long."""
PER_ADDRESS: Final = 1000
RENEWALS_MAX: Final = 3
CLOSED_AT_ONCE: Final = 200
"""How many connections are closed in one step. Each takes about 100 µs, and other connections must not wait for thousands."""


class Closing(Enum):
    """The reason why a stranger is closed."""

    SILENT = "silent"
    CROWDED_OUT = "crowded out"


class AdmissionLimits(Struct, frozen=True):
    """The limits of an `Admission`.

    Args:
        connections: Number of places.
        patience_s: How long a connection may stay a stranger, in seconds.
        per_address: Number of places of one address. None means `PER_ADDRESS`, and no limit for loopback addresses.
        strangers: Number of strangers.
    """

    connections: int
    patience_s: float
    per_address: int | None = None
    strangers: int = STRANGERS_MAX


class AdmissionPlace:
    """The place of one connection, from its accept until `leave`."""

    __slots__ = ("_admission", "_close", "_renewals", "address", "number", "since_s")

    def __init__(
        self, admission: "Admission", number: int, address: str, since_s: float, close: Callable[[Closing], None]
    ) -> None:
        self.number = number
        self.address = address
        self.since_s = since_s
        self._admission = admission
        self._close = close
        self._renewals = 0

    def renew(self, now_s: float) -> None:
        """Give a stranger whose login is being checked another `patience_s` seconds, at most `RENEWALS_MAX` times."""
        if self._renewals < RENEWALS_MAX and self._admission.forget_stranger(self):
            self._renewals += 1
            self.since_s = now_s
            self._admission.add_stranger(self)

    def keep(self) -> None:
        """Note that the connection is no longer a stranger."""
        self._admission.forget_stranger(self)

    def close(self, why: Closing) -> None:
        """Close the connection. Its owner then calls `leave`."""
        self.keep()
        self._close(why)

    def leave(self) -> None:
        """Give the place back, after the connection has ended."""
        self._admission.remove(self)
        # The callback refers to the connection, and the connection to this place: drop it to break the cycle.
        self._close = _do_nothing


class Admission:
    """Gives each connection a place, within the limits."""

    def __init__(self, limits: AdmissionLimits) -> None:
        self.limits = limits
        self._strangers_max = max(1, min(int(limits.connections * STRANGERS_SHARE), limits.strangers))
        # The strangers in the order of arrival, all together and by address. An OrderedDict finds its first key at once; a dict
        # from which the first keys were deleted has to search for it.
        self._strangers: OrderedDict[int, AdmissionPlace] = OrderedDict()
        self._strangers_of: dict[str, OrderedDict[int, AdmissionPlace]] = {}
        self._places: set[int] = set()
        self._closing: set[int] = set()
        self._by_address: Counter[str] = Counter()
        self._number = 0

    def admit(self, host: str, now_s: float, close: Callable[[Closing], None]) -> AdmissionPlace:
        """Give a place to a connection from `host`. `close` must end the connection. Raises Refusal ``too_many``."""
        address, limit = address_group(host), self._limit(host)
        if limit is not None and self._by_address[address] >= limit:
            raise Refusal("too_many", f"{limit} connections from {address} are open")
        if not self._has_room() and not self._make_room():
            raise Refusal("too_many", f"{self.limits.connections} connections are open")
        self._number += 1
        place = AdmissionPlace(self, self._number, address, now_s, close)
        self._places.add(place.number)
        self.add_stranger(place)
        self._by_address[address] += 1
        return place

    def close_silent(self, now_s: float) -> None:
        """Close at most `CLOSED_AT_ONCE` strangers whose time is over. Call this a few times a second."""
        due = now_s - self.limits.patience_s
        for _ in range(CLOSED_AT_ONCE):
            place = next(iter(self._strangers.values()), None)
            if place is None or place.since_s > due:
                return
            self._closing.add(place.number)
            place.close(Closing.SILENT)

    @property
    def strangers(self) -> int:
        """The number of strangers."""
        return len(self._strangers)

    def add_stranger(self, place: AdmissionPlace) -> None:
        """Add a connection to the strangers, as the newest."""
        self._strangers[place.number] = place
        self._strangers_of.setdefault(place.address, OrderedDict())[place.number] = place

    def forget_stranger(self, place: AdmissionPlace) -> bool:
        """Remove a connection from the strangers. Returns whether it was a stranger."""
        if self._strangers.pop(place.number, None) is None:
            return False
        of_address = self._strangers_of[place.address]
        del of_address[place.number]
        if not of_address:
            del self._strangers_of[place.address]
        return True

    def remove(self, place: AdmissionPlace) -> None:
        """Take a place back."""
        self.forget_stranger(place)
        self._places.discard(place.number)
        self._closing.discard(place.number)
        self._by_address[place.address] -= 1
        if not self._by_address[place.address]:
            del self._by_address[place.address]

    def _has_room(self) -> bool:
        # Connections that are being closed leave their places in a moment.
        taken = len(self._places) - len(self._closing)
        return taken < self.limits.connections and self.strangers < self._strangers_max

    def _make_room(self) -> bool:
        if not self._strangers_of:
            return False
        place = next(iter(max(self._strangers_of.values(), key=len).values()))
        self._closing.add(place.number)
        place.close(Closing.CROWDED_OUT)
        return True

    def _limit(self, host: str) -> int | None:
        if self.limits.per_address is not None:
            return self.limits.per_address
        return None if is_loopback(host) else PER_ADDRESS


def _do_nothing(_: Closing) -> None:
    pass
