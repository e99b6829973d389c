"""Durations and sizes as people write them: ``500ms``, ``5s``, ``2m``; ``64KiB``, ``64MiB``."""

import re
from typing import Annotated

from pydantic import BeforeValidator, TypeAdapter

from broker.kinds import Metavar

__all__ = ["Bytes", "Seconds", "format_bytes", "format_seconds", "parse_bytes", "parse_seconds"]

_SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES_PER_UNIT = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def parse_seconds(text: str) -> float:
    """Read a duration such as ``500ms`` or ``2m`` as seconds; a bare number is refused, since it hides its unit.

    Raises ValueError with a sentence for the person who wrote it.
    """
    number, unit = _split(text)
    if unit not in _SECONDS_PER_UNIT and float(number or 1) != 0:
        raise ValueError(f"{text!r} is no duration; write it like 500ms, 5s, 2m or 1h")
    return float(number) * _SECONDS_PER_UNIT.get(unit, 1.0)


def parse_bytes(text: str) -> int:
    """Read a size such as ``64MiB`` or ``1048576`` as bytes. Raises ValueError for anything else."""
    number, unit = _split(text)
    if unit not in _BYTES_PER_UNIT:
        raise ValueError(f"{text!r} is no size; write it like 4096, 64KiB, 64MiB or 1GiB")
    return int(float(number) * _BYTES_PER_UNIT[unit])


def format_seconds(seconds: float) -> str:
    """Write a duration with the largest unit that keeps it whole, as `parse_seconds` reads it."""
    for unit in ("d", "h", "m", "s"):
        if seconds and seconds % _SECONDS_PER_UNIT[unit] == 0:
            return f"{seconds / _SECONDS_PER_UNIT[unit]:g}{unit}"
    return f"{seconds * 1000:g}ms" if seconds else "0s"


def format_bytes(size: int) -> str:
    """Write a size with the largest binary unit that leaves at least 1, to one decimal place."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size >= _BYTES_PER_UNIT[unit]:
            return f"{size / _BYTES_PER_UNIT[unit]:.1f} {unit}"
    return f"{size} B"


def _split(text: str) -> tuple[str, str]:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no quantity; write a number and a unit, like 5s or 64MiB")
    return match[1], match[2]


def _seconds(value: object) -> float:
    return parse_seconds(value) if isinstance(value, str) else TypeAdapter(float).validate_python(value)


def _bytes(value: object) -> int:
    return parse_bytes(value) if isinstance(value, str) else TypeAdapter(int).validate_python(value)


Seconds = Annotated[float, BeforeValidator(_seconds), Metavar("DURATION", "500ms, 5s, 2m or 1h")]
"""A settings field in seconds that people write with a unit."""

Bytes = Annotated[int, BeforeValidator(_bytes), Metavar("BYTES", "4096, 64KiB, 64MiB or 1GiB")]
"""A settings field in bytes that people write with a unit."""
