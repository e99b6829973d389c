"""The positions of a topic at which a read or a new subscription can begin."""

from datetime import UTC, datetime
from typing import Literal, TypeAlias

from msgspec import Struct

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.words import OFFSET_MAX, whole_number

__all__ = ["Moment", "Position", "read_position"]


class Moment(Struct, frozen=True):
    """A time to begin at, in milliseconds since 1970 UTC."""

    at_ms: int


Position: TypeAlias = int | Literal["earliest", "latest"] | Moment


def read_position(word: str) -> Position:
    """Read ``earliest``, ``latest``, an offset (``1042`` or ``@1042``) or a time in ISO 8601.

    Raises Refusal ``bad_arguments``.
    """
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    digits = word.removeprefix("@")
    if digits.isascii() and digits.isdecimal():
        offset = whole_number(digits, OFFSET_MAX)
        if offset is None:
            raise Refusal("bad_arguments", f"{word[:40]} is not an offset; the largest is {OFFSET_MAX}")
        return offset
    try:
        moment = datetime.fromisoformat(word)
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise Refusal(
            "bad_arguments",
            f"{word[:40]!a} is not a position; write an offset, earliest, latest or 2026-11-27T20:00:00Z",
        ) from None
    return Moment(round(seconds * 1000))
