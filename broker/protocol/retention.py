"""How long a topic's events stay in its log."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from broker.errors import Refusal
from broker.protocol.commands import Retain
from broker.protocol.names import check_name
from broker.protocol.options import Options
from broker.protocol.words import words_of
from broker.units import format_bytes, format_seconds, parse_bytes, parse_seconds

__all__ = ["RETENTION_VERBS", "Retention"]

_AGE_MS_MAX = 100 * 365 * 86_400_000


class Retention(Struct, frozen=True, omit_defaults=True):
    """When old segments go; with nothing set, none ever does.

    One goes when its newest event is older than `age_ms`; when at least `bytes` newer ones are behind it; or, with
    `is_settled`, when every durable subscription has settled all of it. What a durable subscription still needs stays all
    the same, until the log is larger than `at_most_bytes`: then the oldest goes whoever needs it.
    """

    age_ms: int | None = None
    bytes: int | None = None
    is_settled: bool = False
    at_most_bytes: int | None = None

    def changed(self, change: dict[str, Any]) -> "Retention":
        """Return it with some members replaced."""
        return msgspec.structs.replace(self, **change)

    def __str__(self) -> str:
        """The options of ``retain`` that make it."""
        age = "none" if self.age_ms is None else format_seconds(self.age_ms / 1000)
        return (
            f"age={age} bytes={_size(self.bytes)} settled={'yes' if self.is_settled else 'no'}"
            f" at_most={_size(self.at_most_bytes)}"
        )


def _retain(rest: bytes) -> Retain:
    topic, *words = words_of(rest, "retain <topic> [age=7d] [bytes=10GiB] [settled=yes|no] [at_most=20GiB]", 1)
    options = Options(words)
    command = Retain(check_name(topic), _read_change(options))
    options.end()
    return command


def _read_change(options: Options) -> dict[str, Any]:
    """Take the options of a ``retain`` line; what is left out is not in the result, ``none`` takes a limit away."""
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
            raise Refusal("bad_arguments", "settled is yes or no")
        change["is_settled"] = settled == "yes"
    return change


def _age_ms(text: str) -> int:
    try:
        value = round(parse_seconds(text) * 1000)
    except ValueError as error:
        raise Refusal("bad_arguments", f"age: {error}, or none") from None
    if not 0 < value <= _AGE_MS_MAX:
        raise Refusal("bad_arguments", "age is more than 0s and a hundred years at most")
    return value


def _bytes(name: str, text: str) -> int:
    try:
        value = parse_bytes(text)
    except ValueError as error:
        raise Refusal("bad_arguments", f"{name}: {error}, or none") from None
    if value >= 1 << 63:
        raise Refusal("bad_arguments", f"{name} is less than 8388608TiB")
    return value


def _size(size: int | None) -> str:
    return "none" if size is None else format_bytes(size).replace(" ", "").replace(".0", "")


RETENTION_VERBS: Final[dict[str, Callable[[bytes], Retain]]] = {"retain": _retain}
