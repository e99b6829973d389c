"""The arguments of an application as words of a line. Each function returns one word, or raises ValueError."""

import math
from collections.abc import Sequence
from typing import Final, TypeAlias

from tweetwire.protocol.failures import CAUSES, Cause

__all__ = ["REFS_PER_LINE", "Start", "causes", "duration", "encoded", "is_word", "number", "start_word", "word"]

REFS_PER_LINE: Final = 512
"""The largest number of events that one line names."""

Start: TypeAlias = int | str
"""A place in a topic: ``latest``, ``earliest``, an offset or a time (ISO 8601)."""


def is_word(value: object) -> bool:
    """Return whether a value is text that a line can hold as one word."""
    if not isinstance(value, str) or value.split() != [value]:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def word(what: str, value: str) -> str:
    """Return `value`, which an error calls `what`."""
    if not is_word(value):
        raise ValueError(f"{what} {value!r:.80} is not one word of text: it must not be empty or contain white space")
    return value


def number(what: str, value: int) -> str:
    """Write a whole number."""
    if not isinstance(value, int):
        raise ValueError(f"{what} {value!r:.80} is not a whole number")
    return f"{value:d}"


def start_word(value: Start, what: str = "offset") -> str:
    """Write a place in a topic."""
    return number(what, value) if isinstance(value, int) else word(what, value)


def duration(what: str, seconds: float) -> str:
    """Write a duration. The broker keeps durations in milliseconds."""
    if not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise ValueError(f"{what} {seconds!r:.80} is not a number of seconds")
    return f"{round(seconds * 1000)}ms"


def causes(strikes: Sequence[Cause]) -> str:
    """Write a list of causes."""
    if isinstance(strikes, str) or any(cause not in CAUSES for cause in strikes):
        raise ValueError(f"strikes {strikes!r:.80} is not a list of some of {', '.join(CAUSES)}")
    return ",".join(strikes) or "none"


def encoded(line: str) -> bytes:
    """Encode a line."""
    try:
        return line.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{line[:80]!r} holds a character that UTF-8 cannot express: {error.reason}") from None
