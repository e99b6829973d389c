"""Failed tries: why a delivered event was not settled, and the history that the broker keeps until it is settled."""

from typing import Final, Literal, TypeAlias

from msgspec import Struct

__all__ = ["CAUSES", "HISTORY_MAX", "Attempts", "Cause", "Failure"]

Cause: TypeAlias = Literal["nack", "timeout", "disconnect"]

CAUSES: tuple[Cause, ...] = ("nack", "timeout", "disconnect")


class Failure(Struct, frozen=True, omit_defaults=True):
    """One failed try: when (ms since 1970 UTC), why and with which client. The other members come from a ``nack``."""

    at: int
    cause: Cause
    client: str
    message: str | None = None
    code: str | int | None = None
    trace: str | None = None

    @property
    def size(self) -> int:
        """The number of characters of message and trace."""
        return len(self.message or "") + len(self.trace or "")


HISTORY_MAX: Final = 20
"""The most failures that are kept of an event. Older ones are only counted."""

HISTORY_BYTES_MAX: Final = 64 << 10
"""The most characters of messages and traces that are kept of an event. Older failures are only counted."""


class Attempts(Struct, frozen=True):
    """The failed tries of one event for one subscription. `strikes` of them count towards its death."""

    first_at: int
    count: int
    strikes: int
    errors: tuple[Failure, ...]

    @staticmethod
    def after(before: "Attempts | None", failure: Failure, *, is_strike: bool) -> "Attempts":
        """Return the attempts of an event after one more failure; `before` is None at its first."""
        if before is None:
            return Attempts(failure.at, 1, int(is_strike), (failure,))
        errors = [*before.errors[-(HISTORY_MAX - 1) :], failure]
        while sum(error.size for error in errors) > HISTORY_BYTES_MAX and len(errors) > 1:
            del errors[0]
        return Attempts(before.first_at, before.count + 1, before.strikes + is_strike, tuple(errors))

    def forgiven(self) -> "Attempts":
        """Return the same history without strikes, for an event that is redriven."""
        return Attempts(self.first_at, self.count, 0, self.errors)
