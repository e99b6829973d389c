"""Format figures, times and ages for people."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from tweetwire.runtime.wording import age_text as age

__all__ = ["age", "cut", "number", "pretty", "rate", "time_text"]


def number(value: float | None) -> str:
    """Format a number with separated thousands, and with decimals only if it is small."""
    if value is None:
        return "–"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 1 else f"{value:.2g}"


def rate(per_second: float) -> str:
    """Format a rate."""
    return f"{number(per_second)}/s"


def time_text(time_ms: int | None) -> str:
    """Format milliseconds since 1970 as ``2026-11-27 20:00:00.123`` in UTC."""
    if time_ms is None:
        return ""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def pretty(value: Any) -> str:
    """Format a value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def cut(text: str, most: int) -> str:
    """Return the beginning of a text, with an ellipsis if it was cut."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
