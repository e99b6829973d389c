"""Failed tries: why an event that was delivered was not settled, and what is remembered of it until it is."""

from typing import Final, Literal, TypeAlias

from msgspec import Struct

__all__ = ["CAUSES", "HISTORY_MAX", "Attempts", "Cause", "Failure"]

Cause: TypeAlias = Literal["nack", "timeout", "disconnect"]

CAUSES: tuple[Cause, ...] = ("nack", "timeout", "disconnect")


class Failure(Struct, frozen=True, omit_defaults=True):
    """When (ms), why and with which client a try failed; the rest is the consumer's own words, from its ``nack``."""

    at: int
    cause: Cause
    client: str
    message: str | None = None
    code: str | int | None = None
    trace: str | None = None

    @property
    def size(self) -> int:
        """The length of the consumer's words."""
        return len(self.message or "") + len(self.trace or "")


HISTORY_MAX: Final = 20
HISTORY_BYTES_MAX: Final = 64 << 10
"""So many failures, and so many characters of their words, are kept; older ones are counted only."""


class Attempts(Struct, frozen=True):
    """The failed tries of one event for one subscription; `strikes` of them count towards its death."""

    first_at: int
    count: int
    strikes: int
    errors: tuple[Failure, ...]

    @staticmethod
    def after(before: "Attempts | None", failure: Failure, *, is_strike: bool) -> "Attempts":
        """Return what is remembered when `failure` has come to what was."""
        if before is None:
            return Attempts(failure.at, 1, int(is_strike), (failure,))
        errors = [*before.errors[-(HISTORY_MAX - 1) :], failure]
        while sum(error.size for error in errors) > HISTORY_BYTES_MAX and len(errors) > 1:
            del errors[0]
        return Attempts(before.first_at, before.count + 1, before.strikes + is_strike, tuple(errors))

    def forgiven(self) -> "Attempts":
        """Return the same history with no strike, for an event that is to be tried again."""
        return Attempts(self.first_at, self.count, 0, self.errors)
