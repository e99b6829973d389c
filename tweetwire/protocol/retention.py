"""The retention of a topic: how long its events stay in the log."""

from typing import Any

import msgspec
from msgspec import Struct

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.options import Options
from tweetwire.protocol.units import format_seconds, parse_bytes, parse_seconds

__all__ = ["Retention", "read_retention_change"]

_AGE_MS_MAX = 100 * 365 * 86_400_000


class Retention(Struct, frozen=True, omit_defaults=True):
    """The rules by which the broker deletes old segments of a log. Without a rule, every segment stays.

    A segment is deleted if one of the first three rules applies to it and every durable subscription has settled it. The
    last rule also deletes segments that a subscription still needs.

    Attributes:
        age_ms: Delete a segment whose newest event is older than this.
        bytes: Delete a segment that is followed by at least this many bytes of newer events.
        is_settled: Delete a segment as soon as every durable subscription has settled it. There must be a durable subscription.
        at_most_bytes: Delete the oldest segment if the log is larger than this.
    """

    age_ms: int | None = None
    bytes: int | None = None
    is_settled: bool = False
    at_most_bytes: int | None = None

    def changed(self, change: dict[str, Any]) -> "Retention":
        """Return a copy with the members of `change` replaced."""
        return msgspec.structs.replace(self, **change)

    def __str__(self) -> str:
        """Return the options of the ``retain`` line that sets it."""
        age = "none" if self.age_ms is None else format_seconds(self.age_ms / 1000)
        return (
            f"age={age} bytes={_size(self.bytes)} settled={'yes' if self.is_settled else 'no'}"
            f" at_most={_size(self.at_most_bytes)}"
        )


def read_retention_change(options: Options) -> dict[str, Any]:
    """Take the options of a ``retain`` line. The result holds only the given ones; ``none`` removes a limit."""
    change: dict[str, Any] = {}
    age = options.text("age")
    if age is not None:
        change["age_ms"] = None if age == "none" else _age_ms(age)
    for name, member in (("bytes", "bytes"), ("at_most", "at_most_bytes")):
        size = options.text(name)
        if size is not None:
            change[member] = None if size == "none" else _bytes(name, size)
    settled = options.text("settled")
    if settled is not None:
        if settled not in {"yes", "no"}:
            raise Refusal("bad_arguments", "settled must be yes or no")
        change["is_settled"] = settled == "yes"
    return change


def _age_ms(text: str) -> int:
    try:
        value = round(parse_seconds(text) * 1000)
    except ValueError as error:
        raise Refusal("bad_arguments", f"age: {error}, or none") from None
    if not 0 < value <= _AGE_MS_MAX:
        raise Refusal("bad_arguments", "age must be more than 0s and at most a hundred years (36500d)")
    return value


def _bytes(name: str, text: str) -> int:
    try:
        value = parse_bytes(text)
    except ValueError as error:
        raise Refusal("bad_arguments", f"{name}: {error}, or none") from None
    if value >= 1 << 63:
        raise Refusal("bad_arguments", f"{name} must be less than 8388608TiB")
    return value


def _size(size: int | None) -> str:
    """Write a size so that reading it again gives the same size."""
    if size is None:
        return "none"
    for bits, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        tenths, rest = divmod(size * 10, 1 << bits)
        if size >= 1 << bits and rest == 0:
            return f"{tenths // 10}.{tenths % 10}{unit}".replace(".0", "")
    return f"{size}B"
