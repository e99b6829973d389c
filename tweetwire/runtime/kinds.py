"""Types for settings: how a value is written, and the word for it in ``--help``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, TypeAdapter

from tweetwire.client.addresses import split_address
from tweetwire.protocol.units import parse_bytes, parse_seconds

__all__ = [
    "Address",
    "Bytes",
    "Folder",
    "Metavar",
    "OptionalCount",
    "OptionalFile",
    "OptionalSeconds",
    "OptionalUrl",
    "Seconds",
    "Switch",
]


@dataclass(frozen=True)
class Metavar:
    """The word for a value in ``--help``, with examples if the word does not show how a value is written."""

    word: str
    examples: str = ""


def _address(text: str) -> str:
    split_address(text)
    return text


Address = Annotated[str, AfterValidator(_address), Metavar("HOST:PORT")]
"""The address of a broker. A text that is not an address is refused before the program starts."""

Folder = Annotated[Path, Metavar("FOLDER")]
"""A folder. The plain type Path is for files."""

OptionalFile = Annotated[Path | None, BeforeValidator(lambda given: None if given == "" else given)]
"""A file that may be left out. An empty text counts as left out, because Compose passes an unset variable that way."""

OptionalUrl = Annotated[
    str | None, BeforeValidator(lambda given: None if given == "" else given), Metavar("URL", "s3://bucket/prefix")
]
"""An address that may be left out. An empty text counts as left out, because Compose passes an unset variable that way."""

OptionalCount = Annotated[int | None, BeforeValidator(lambda given: None if given == "" else given), Metavar("N")]
"""A number that may be left out. An empty text counts as left out, because Compose passes an unset variable that way."""

Switch = Annotated[bool, BeforeValidator(lambda given: False if given == "" else given)]
"""Yes or no. An empty text is no, because Compose passes an unset variable that way."""


def _seconds(value: object) -> float:
    return parse_seconds(value) if isinstance(value, str) else TypeAdapter(float).validate_python(value)


def _bytes(value: object) -> int:
    return parse_bytes(value) if isinstance(value, str) else TypeAdapter(int).validate_python(value)


Seconds = Annotated[float, BeforeValidator(_seconds), Metavar("DURATION", "500ms, 5s, 2m or 1h")]
"""A duration in seconds. Users write it with a unit."""

OptionalSeconds = Annotated[
    float | None,
    BeforeValidator(lambda value: None if value in (None, "") else _seconds(value)),
    Metavar("DURATION", "500ms, 5s, 2m or 1h"),
]
"""A duration in seconds that may be left out."""

Bytes = Annotated[int, BeforeValidator(_bytes), Metavar("BYTES", "4096, 64KiB, 64MiB or 1GiB")]
"""A size in bytes. Users write it with a unit."""
