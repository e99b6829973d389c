"""Convert members of untrusted JSON to the types that MongoDB stores. No value raises an error."""

import json
import re
from datetime import UTC, datetime
from functools import lru_cache
from html import unescape
from typing import Any

import msgspec

__all__ = [
    "ID_CHARACTERS_MAX",
    "count",
    "date",
    "decode",
    "identifier",
    "json_text",
    "text_or_none",
    "texts",
    "unescaped",
]

ID_CHARACTERS_MAX = 200
"""The longest id of a tweet. It becomes the id of a broker event, which has at most 256 characters."""

DATES_REMEMBERED = 4096
"""The size of a cache: most tweets of a second have the same date, and an author's date is the same in each tweet."""

_DATE_MAX = 64

_INT64_MAX = (1 << 63) - 1
_MONTHS = {
    name: month
    for month, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}
_LONG_REFERENCE = re.compile(r"&#[0-9]{4000,};?")
_SURROGATE = re.compile("[\ud800-\udfff]")
_decode = msgspec.json.Decoder().decode


def decode(data: bytes) -> Any:
    """Decode JSON. Raises ValueError.

    An unpaired surrogate (``"\\ud83d"``) and bytes that are not UTF-8 become U+FFFD.
    """
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeError):
        return _whole(json.loads(data.decode("utf-8", "replace"), parse_constant=_refuse_constant))


def json_text(value: Any) -> str:
    """Write a decoded value as JSON text, to keep the unusable part of an event."""
    return json.dumps(value, ensure_ascii=False)


def identifier(text: Any, number: Any = None) -> str | None:
    """Return an id as text: `text` if it is valid, else `number`, else None. Either may be a string or a number."""
    for value in (text, number):
        if isinstance(value, str) and 0 < len(value) <= ID_CHARACTERS_MAX:
            return value
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return str(value)[:ID_CHARACTERS_MAX]
    return None


def count(value: Any) -> int:
    """Return a count, at most the largest Int64. Null and values that are not counts become 0."""
    if type(value) is int and 0 <= value <= _INT64_MAX:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return 0
    return _INT64_MAX if value >= _INT64_MAX else int(value)


def date(value: Any) -> datetime | None:
    """Parse Twitter's ``Wed Jan 06 07:30:00 +0000 2016`` or ISO 8601 as an aware UTC date; None for any other value."""
    # A longer text is not a date, and must not fill the cache.
    return _date(value) if isinstance(value, str) and len(value) <= _DATE_MAX else None


@lru_cache(DATES_REMEMBERED)
def _date(value: str) -> datetime | None:
    try:
        if len(value) == 30 and value[19:26] == " +0000 ":
            month, day, year = _MONTHS[value[4:7]], int(value[8:10]), int(value[26:])
            # Python has no leap seconds, so second 60 becomes 59.
            return datetime(
                year, month, day, int(value[11:13]), int(value[14:16]), min(int(value[17:19]), 59), tzinfo=UTC
            )
        parsed = datetime.fromisoformat(value)
        return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    except (ValueError, KeyError, OverflowError):
        return None


def text_or_none(value: Any) -> str | None:
    """Return a non-empty text, else None."""
    return value if isinstance(value, str) and value else None


def texts(items: Any, *members: str) -> list[str]:
    """Return the first text among `members` of each object in `items`, in order, without duplicates."""
    if not items or not isinstance(items, list):
        return []
    found: dict[str, None] = {}
    for item in items:
        value = item
        if isinstance(item, dict):
            value = next((item[member] for member in members if text_or_none(item.get(member))), None)
        if isinstance(value, str) and value:
            found[value] = None
    return list(found)


def unescaped(text: str) -> str:
    """Return the text with HTML's character references replaced by the characters."""
    if "&" not in text:
        return text
    try:
        return unescape(text)
    except ValueError:
        # Python refuses numbers of more than 4,300 digits, and no character has such a number.
        return unescape(_LONG_REFERENCE.sub("\ufffd", text))


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
