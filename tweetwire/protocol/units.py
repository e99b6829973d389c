"""Durations and sizes as people write them: ``500ms``, ``5s``, ``2m``; ``64KiB``, ``64MiB``."""

import re
from decimal import Decimal
from typing import Final

__all__ = ["format_bytes", "format_seconds", "parse_bytes", "parse_seconds"]

_SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES_PER_UNIT = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_DIGITS_MAX: Final = 24
"""The most digits of a number, more than any real quantity has. A float of more than 308 digits would be infinite."""


def parse_seconds(text: str) -> float:
    """Read a duration such as ``500ms`` or ``2m`` as seconds. A number without a unit is refused, except 0.

    Raises ValueError with a sentence for the user who wrote the text.
    """
    number, unit = _split(text)
    if unit not in _SECONDS_PER_UNIT and float(number or 1) != 0:
        raise ValueError(f"{text!r} is not a duration; write it like 500ms, 5s, 2m or 1h")
    return float(number) * _SECONDS_PER_UNIT.get(unit, 1.0)


def parse_bytes(text: str) -> int:
    """Read a size such as ``64MiB`` or ``1048576`` as bytes. Raises ValueError for any other text."""
    number, unit = _split(text)
    if unit not in _BYTES_PER_UNIT:
        raise ValueError(f"{text!r} is not a size; write it like 4096, 64KiB, 64MiB or 1GiB")
    # A float has a precision of 53 bits, and a size may need 63.
    return int(Decimal(number) * _BYTES_PER_UNIT[unit])


def format_seconds(seconds: float) -> str:
    """Write a duration as `parse_seconds` reads it, in the largest unit that needs no fraction."""
    for unit in ("d", "h", "m", "s"):
        if seconds and seconds % _SECONDS_PER_UNIT[unit] == 0:
            return f"{seconds / _SECONDS_PER_UNIT[unit]:.0f}{unit}"
    return f"{seconds * 1000:.3f}".rstrip("0").rstrip(".") + "ms" if seconds else "0s"


def format_bytes(size: int) -> str:
    """Write a size with one decimal place, in the largest binary unit that is not larger than it."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size >= _BYTES_PER_UNIT[unit]:
            return f"{size / _BYTES_PER_UNIT[unit]:.1f} {unit}"
    return f"{size} B"


def _split(text: str) -> tuple[str, str]:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a quantity; write a number and a unit, like 5s or 64MiB")
    if len(match[1]) > _DIGITS_MAX:
        raise ValueError(f"a number of {len(match[1])} digits is too long; write at most {_DIGITS_MAX}")
    return match[1], match[2]
