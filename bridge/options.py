"""The options of a route: a query of its address, or members of its table."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct, structs

from bridge.envelope import EnvelopeKind, ValueKind
from bridge.opening import Begin, OnGap, OnLost
from tweetwire.protocol import check_name
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.units import parse_bytes, parse_seconds

__all__ = ["NAME_MAX", "Direction", "Options", "read_options"]

Direction: TypeAlias = Literal["out", "in"]

NAME_MAX: Final = 120
"""The longest name of a route. A producer's name has at most 128 characters, and an ending may follow the route's name."""
_OUT_ONLY: Final = frozenset({"trim", "replicas", "create", "tombstones", "envelope", "subject", "partitions"})
_DEFAULTS: Final[dict[tuple[Direction, str], dict[str, Any]]] = {
    # A transaction costs several round trips, so it should hold many events.
    ("out", "kafka"): {"batch": 10_000, "batch_bytes": 4 << 20}
}
"""The defaults of one engine that are not those of all."""
_SUBJECT_MAX: Final = 200
_ENGINE_OF: Final = {"trim": "redis", "db": "redis", "subject": "nats", "partitions": "kafka"}
"""The options that only one engine has."""
_SUBJECT: Final = re.compile(
    r"(?!\$)(?:[^\s.*>{}]|\{(?:broker|topic|key)\})+(?:\.(?:[^\s.*>{}]|\{(?:broker|topic|key)\})+)*"
)


class Options(Struct, frozen=True, kw_only=True):
    """The options of a route.

    Attributes:
        begin: Where a new route begins: ``earliest``, ``latest``, or an offset (of a route inwards: a place of the engine).
        on_lost: The consequence when the central stream no longer has what was sent or read.
        on_gap: The consequence when events were removed before they were sent or read.
        value: Whether the value is the event's `msg` or the whole event.
        envelope: Whether records are CloudEvents.
        tombstones: Whether an event with the `msg` null is a record without a value.
        batch: The most events of one write.
        batch_bytes: The approximate most bytes of one write.
        linger_s: How long to wait for more events before a write that is not full.
        trim: The approximate number of entries that the stream keeps; 0 for all.
        replicas: The number of replicas that must have a write.
        create: Whether the stream is made if it does not exist.
        as_: The name of the mark, or of the producer.
        db: The number of the database.
        partitions: The number of partitions of a central topic that the route makes; 0 for the server's default.
        subject: The subjects of the messages, with ``{broker}``, ``{topic}`` and ``{key}``; "" for the engine's own.
    """

    begin: Begin | str = "earliest"
    on_lost: OnLost = "fail"
    on_gap: OnGap = "report"
    value: ValueKind = "msg"
    envelope: EnvelopeKind = "cloudevents"
    tombstones: bool = False
    batch: int = 1000
    batch_bytes: int = 1 << 20
    linger_s: float = 0.0
    trim: int = 0
    replicas: int = 0
    create: bool = True
    as_: str = ""
    db: int = 0
    partitions: int = 0
    subject: str = ""


def read_options(direction: Direction, engine: str, words: Sequence[tuple[str, str]], address: str) -> Options:
    """Return the options of a route from their names and texts. Raises ValueError with one sentence."""
    values: dict[str, Any] = {}
    for name, text in words:
        read = _READERS.get(name)
        known = [one for one in _READERS if _has(direction, engine, one)]
        if read is None or name not in known:
            raise ValueError(
                f"{address!r}: {name!r} is not an option of this route; the options are {', '.join(known)}"
            )
        field = _FIELDS.get(name, name)
        if field in values:
            raise ValueError(f"{address!r}: the option {name} is given twice")
        try:
            values[field] = read(text)
        except ValueError as error:
            raise ValueError(f"{address!r}: {name}={text}: {error}") from None
    if direction == "out" and isinstance(values.get("begin"), str) and values["begin"] not in {"earliest", "latest"}:
        raise ValueError(f"{address!r}: begin={values['begin']}: write earliest, latest or an offset")
    defaults = _DEFAULTS.get((direction, engine), {})
    return structs.replace(Options(), **{**defaults, **values})


def _has(direction: Direction, engine: str, name: str) -> bool:
    return (direction == "out" or name not in _OUT_ONLY) and _ENGINE_OF.get(name, engine) == engine


def _begin(text: str) -> Begin | str:
    if not text:
        raise ValueError("write earliest, latest or an offset")
    return int(text) if text.isdecimal() and text.isascii() else text


def _choice(*words: str) -> Callable[[str], Any]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"write {' or '.join(words)}")
        return text

    return read


def _switch(text: str) -> bool:
    if text not in {"yes", "no"}:
        raise ValueError("write yes or no")
    return text == "yes"


def _number(least: int, most: int) -> Callable[[str], Any]:
    def read(text: str) -> int:
        if not (text.isdecimal() and text.isascii() and len(text) < 19 and least <= int(text) <= most):
            raise ValueError(f"write a number from {least} to {most}")
        return int(text)

    return read


def _subject(text: str) -> str:
    if not _SUBJECT.fullmatch(text) or len(text) > _SUBJECT_MAX:
        raise ValueError(
            "write words with dots between them, without spaces and wildcards; {broker}, {topic} and {key} may be among them"
        )
    return text


def _name(text: str) -> str:
    if len(text) > NAME_MAX:
        raise ValueError(f"a name has at most {NAME_MAX} characters")
    try:
        return check_name(text)
    except Refusal as refusal:
        raise ValueError(refusal.text) from refusal


_FIELDS: Final = {"as": "as_", "linger": "linger_s"}
_READERS: Final[dict[str, Any]] = {
    "begin": _begin,
    "on_lost": _choice(*get_args(OnLost)),
    "on_gap": _choice(*get_args(OnGap)),
    "value": _choice(*get_args(ValueKind)),
    "envelope": _choice(*get_args(EnvelopeKind)),
    "tombstones": _switch,
    "batch": _number(1, 10_000),
    "batch_bytes": parse_bytes,
    "linger": parse_seconds,
    "trim": _number(1, 10**15),
    "replicas": _number(0, 100),
    "create": _switch,
    "partitions": _number(1, 10_000),
    "as": _name,
    "db": _number(0, 10_000),
    "subject": _subject,
}
