"""Read the places of a topic and the times that users type: ``@1042``, ``10m``, ``yesterday``, ``2026-11-28 14:00``.

A time without a zone is in the local time of this machine. A time that occurs twice, because a clock is set back, means the
first of the two moments. A time that does not exist, because a clock is set forward, is taken as a duration since midnight.
"""

import re
from datetime import UTC, datetime, time, timedelta
from typing import Final

from tweetwire.cli.kinds import Kind
from tweetwire.protocol.units import parse_seconds

__all__ = [
    "DUE_TIME",
    "EXPIRY",
    "PLACE",
    "PLACES",
    "TIME",
    "TIMES",
    "read_due_time",
    "read_expiry",
    "read_place",
    "read_time",
]

TIMES: Final = "10m (ten minutes ago), yesterday, 14:00, 2026-11-28, '2026-11-28 14:00' or 2026-11-28T14:00:00Z"
"""How times are written, for ``--help`` and for sentences."""
COMING: Final = "14:00, '2026-11-28 14:00' or 2026-11-28T14:00:00Z"
"""How times in the future are written."""
PLACES: Final = f"earliest, latest, @1042 (an offset), or a time: {TIMES}"

_DAYS: Final = {"today": 0, "yesterday": 1}
_DURATION: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d)")
_OFFSET: Final = re.compile(r"@?([0-9]{1,19})", re.ASCII)


def read_place(text: str, now: datetime | None = None) -> int | str:
    """Return a place as the clients take it: an offset, ``earliest``, ``latest``, or a time in ISO 8601.

    Args:
        text: The typed text. A time in the future is a place, too: until that time, it is the end of the topic.
        now: The current time, which is aware; None to read the clock.

    Raises:
        ValueError: `text` is not a place. The sentence says how places are written.
    """
    word = text.strip()
    if word in {"earliest", "latest"}:
        return word
    if found := _OFFSET.fullmatch(word):
        return int(found[1])
    try:
        at = read_time(word, now)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a place; write {PLACES}") from None
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_time(text: str, now: datetime | None = None) -> datetime:
    """Return a time in UTC. A duration means that long before now.

    Args:
        text: The typed text.
        now: The current time, which is aware; None to read the clock.

    Raises:
        ValueError: `text` is not a time. The sentence says how times are written.
    """
    now = now or datetime.now(UTC)
    word = " ".join(text.split())
    try:
        if word == "now":
            return now.astimezone(UTC)
        if _DURATION.fullmatch(word):
            return (now - timedelta(seconds=parse_seconds(word))).astimezone(UTC)
        # Do not use astimezone: it moves a time that does not exist back by an hour.
        return datetime.fromtimestamp(_local(word, now).timestamp(), UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:40]!r} is not a time; write {TIMES}") from None


def _local(word: str, now: datetime) -> datetime:
    """Return a date, a time of day or both. The result is naive, which means local time, unless `word` names a zone."""
    day, _, rest = word.partition(" ")
    today = now.astimezone().date()
    if day in _DAYS:
        # Use the calendar's previous day: with daylight saving time, a day may have 23 or 25 hours.
        return datetime.combine(today - timedelta(days=_DAYS[day]), time.fromisoformat(rest or "00:00"))
    if ":" in day and not rest and "-" not in day:
        return datetime.combine(today, time.fromisoformat(day))
    return datetime.fromisoformat(word)


def read_due_time(text: str, now: datetime | None = None) -> datetime:
    """Return a time that is still to come, in UTC. Raises ValueError for a duration and for a time that has passed."""
    now = now or datetime.now(UTC)
    if _DURATION.fullmatch(text.strip()):
        raise ValueError(f"{text[:40]!r} is a duration; pass it with --delay, or write a time: {COMING}")
    try:
        at = read_time(text, now)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a time; write {COMING}") from None
    if at <= now:
        raise ValueError(f"{text[:40]!r} has passed; write a time that is still to come")
    return at


def read_expiry(text: str, now: datetime | None = None) -> datetime | str:
    """Return a duration as it is written, or a time that is still to come. Raises ValueError for any other text."""
    word = text.strip()
    return word if _DURATION.fullmatch(word) else read_due_time(text, now)


PLACE: Final = Kind("PLACE", read_place, PLACES, words=("earliest", "latest", "today", "yesterday"))
TIME: Final = Kind("TIME", read_time, TIMES, words=("today", "yesterday"))
DUE_TIME: Final = Kind("TIME", read_due_time, COMING)
EXPIRY: Final = Kind("TIME", read_expiry, f"10m, {COMING}")
