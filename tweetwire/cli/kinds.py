"""The kinds of values that flags take: the word in ``--help``, how a user writes a value, and how it is read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from tweetwire.client.addresses import split_address
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.names import check_name
from tweetwire.protocol.patterns import check_topic_or_pattern
from tweetwire.protocol.units import format_seconds, parse_bytes, parse_seconds

__all__ = [
    "ADDRESS",
    "BYTES",
    "FILE",
    "FOLDER",
    "INTEGER",
    "LINE",
    "NAME",
    "NUMBER",
    "PATTERN",
    "REF",
    "SECONDS",
    "SOURCE",
    "SWITCH",
    "TEXT",
    "TOKEN",
    "URL",
    "Kind",
    "Token",
    "choice",
    "whole",
    "written",
]

_YES: Final = frozenset({"true", "yes", "on", "1"})
_NO: Final = frozenset({"false", "no", "off", "0"})


class Kind(NamedTuple):
    """A kind of value.

    Attributes:
        word: The word for a value in ``--help``.
        read: Returns the value of a text. Raises ValueError with a sentence that says what is wrong with the text.
        examples: How a user writes a value, if the word does not show it.
        write: Returns a value as a user would write it.
        completes: The names that a shell completes: ``topic``, ``subscription`` or ``context``.
        words: The fixed words that a shell completes.
    """

    word: str
    read: Callable[[str], Any]
    examples: str = ""
    write: Callable[[Any], str] = str
    completes: Literal["", "topic", "subscription", "context"] = ""
    words: tuple[str, ...] = ()


class Token:
    """A token, which is shown nowhere. `plain` is its text."""

    __slots__ = ("plain",)

    def __init__(self, plain: str) -> None:
        self.plain = plain

    def __repr__(self) -> str:
        return "Token(…)"


def written(value: object) -> str:
    """Return a value of any kind as a user would write it."""
    if value is True or value is False:
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(written, value)) or "none"
    return "none" if value in (None, "") else f"{value:.15g}" if isinstance(value, float) else str(value)


def whole(least: int, most: int | None = None) -> Kind:
    """Return the kind of the whole numbers from `least` to `most`."""

    def read(text: str) -> int:
        value = _integer(text)
        if value < least:
            raise ValueError(f"{text!r} is less than {least}")
        if most is not None and value > most:
            raise ValueError(f"{text!r} is more than {most}")
        return value

    return Kind("N", read)


def choice(*words: str) -> Kind:
    """Return the kind that is one of `words`."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"{text!r} is not one of {', '.join(words)}")
        return text

    return Kind(f"{{{','.join(words)}}}", read, words=words)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _name(text: str) -> str:
    try:
        return check_name(text)
    except Refusal as refusal:
        raise ValueError(refusal.text) from None


def _name_or_pattern(text: str) -> str:
    try:
        return check_topic_or_pattern(text)
    except Refusal as refusal:
        raise ValueError(refusal.text) from None


def _ref(text: str) -> str:
    if not text or text.split() != [text]:
        raise ValueError("an id cannot be empty or have spaces here; pass the offset of the event instead: @1042")
    return text


def _line(text: str) -> str:
    if not text.strip() or "\n" in text or "\r" in text:
        raise ValueError("must be one line of text that is not empty")
    return text.strip()


def _address(text: str) -> str:
    split_address(text)
    return text


def _switch(text: str) -> bool:
    lower = text.lower()
    if lower not in _YES | _NO:
        raise ValueError(f"{text!r} is neither true nor false")
    return lower in _YES


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not 0 < value < float("inf"):
        raise ValueError(f"{text!r} is not more than 0")
    return value


def _token(text: str) -> Token:
    if not (text.isprintable() and text.split() == [text]):
        raise ValueError("a token is a word without spaces")
    return Token(text)


ADDRESS: Final = Kind("HOST:PORT", _address)
BYTES: Final = Kind("BYTES", parse_bytes, "4096, 64KiB, 64MiB or 1GiB")
FILE: Final = Kind("FILE", Path)
FOLDER: Final = Kind("FOLDER", Path)
INTEGER: Final = Kind("N", _integer)
LINE: Final = Kind("TEXT", _line)
NAME: Final = Kind("NAME", _name)
NUMBER: Final = Kind("NUMBER", _positive, write=written)
PATTERN: Final = Kind("NAME", _name_or_pattern)
REF: Final = Kind("REF", _ref)
SECONDS: Final = Kind("DURATION", parse_seconds, "500ms, 5s, 2m or 1h", write=format_seconds)
SOURCE: Final = Kind("FOLDER|URL", str, "backups/today or s3://bucket/prefix")
SWITCH: Final = Kind("", _switch, write=written)
TEXT: Final = Kind("TEXT", str)
TOKEN: Final = Kind("TOKEN", _token)
URL: Final = Kind("URL", str, "s3://bucket/prefix")
