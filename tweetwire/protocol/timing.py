"""The due time and the expiry of events: how publishers write them, and how they are stored.

A stored line has them as its last members, in milliseconds since 1970 UTC by the system's clock::

    {"topic":"jobs","offset":7,"timestamp":1650054011933,"id":"1","priority":0,"msg":1,"due":1650054311933,"expires":1650054611933}

Only events that are published with one of them have the type `TimedEvent`, so that other events cost nothing extra.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.events import IncomingEvent
from tweetwire.protocol.options import Options
from tweetwire.protocol.units import parse_seconds
from tweetwire.protocol.words import text_of

__all__ = [
    "AHEAD_MAX_MS",
    "TimedEvent",
    "decode_timed",
    "fix_times",
    "normalize_times",
    "split_options",
    "times_of",
    "with_options",
]

_AHEAD_MAX_DAYS: Final = 365
AHEAD_MAX_MS: Final = _AHEAD_MAX_DAYS * 86_400_000
"""How far ahead (ms) a due time or an expiry may be."""

_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""
_DIGITS: Final = frozenset(b"0123456789")
_TAIL: Final = re.compile(rb'(?:,"due":([0-9]+))?(?:,"expires":([0-9]+))?\}\s*\Z')
_TAIL_BYTES: Final = 70
_DURATION: Final = re.compile(r"\s*[0-9.]+\s*[A-Za-z]*\s*")
_SHORT: Final = 20
_OPTION: Final = re.compile(rb"([A-Za-z_]+=\S*)\s+")


class TimedEvent(IncomingEvent, forbid_unknown_fields=True, kw_only=True, gc=False):
    """An event with a due time or an expiry, as the broker takes it in. `fix_times` turns its members into integers.

    Attributes:
        due: The event is not delivered before this time: milliseconds since 1970 UTC, or a time in ISO 8601.
        delay: How long after its arrival the event is due, such as ``5m``. It is never stored.
        expires: The event is not delivered after this time: as `due`, or a duration that counts from the arrival.
    """

    due: int | str | UnsetType = UNSET
    delay: str | UnsetType = UNSET
    expires: int | str | UnsetType = UNSET


decode_timed: Final = msgspec.json.Decoder(TimedEvent).decode


def normalize_times(event: TimedEvent) -> None:
    """Check the times of an event as far as this needs no clock, and turn times in ISO 8601 into numbers.

    Raises Refusal ``bad_event``.
    """
    if event.due is not UNSET and event.delay is not UNSET:
        raise Refusal("bad_event", "due and delay exclude each other; send one of them")
    if event.delay is not UNSET:
        _duration_ms("delay", event.delay)
    if event.due is not UNSET:
        event.due = _time_ms("due", event.due)
    if isinstance(event.expires, str) and _DURATION.fullmatch(event.expires):
        if _duration_ms("expires", event.expires) == 0:
            raise Refusal("bad_event", "expires is 0, so the event would never be delivered; write it like 10m")
    elif event.expires is not UNSET:
        event.expires = _time_ms("expires", event.expires)


def fix_times(event: TimedEvent, date_ms: int) -> None:
    """Turn the durations of an event that arrives at `date_ms` into times. Raises Refusal ``bad_event``.

    `normalize_times` has checked the event. Afterwards, `due` and `expires` are numbers or not set.
    """
    if event.delay is not UNSET:
        event.due, event.delay = date_ms + _duration_ms("delay", event.delay), UNSET
    if isinstance(event.expires, str):
        event.expires = date_ms + _duration_ms("expires", event.expires)
    latest_ms = date_ms + AHEAD_MAX_MS
    if isinstance(event.due, int) and event.due > latest_ms:
        raise Refusal("bad_event", f"due is more than {_AHEAD_MAX_DAYS} days ahead")
    if isinstance(event.expires, int) and event.expires > latest_ms:
        raise Refusal("bad_event", f"expires is more than {_AHEAD_MAX_DAYS} days ahead")
    if isinstance(event.expires, int) and isinstance(event.due, int) and event.expires <= event.due:
        raise Refusal("bad_event", "the event expires before it is due; expires must be later than the due time")


def split_options(raw: bytes) -> tuple[list[bytes], bytes]:
    """Split the text after the topic of a ``pub`` line. Return the words of its options, and the text of its event."""
    words: list[bytes] = []
    while found := _OPTION.match(raw):
        words.append(found[1])
        raw = raw[found.end() :]
    return words, raw


def with_options(event: IncomingEvent, words: list[bytes]) -> TimedEvent:
    """Return an event with the times of ``delay=``, ``at=`` and ``expires=``. Raises Refusal ``bad_arguments``."""
    options = Options([text_of(word) for word in words])
    given = {"delay": options.text("delay"), "due": options.text("at"), "expires": options.text("expires")}
    options.end()
    if given["delay"] and given["due"]:
        raise Refusal("bad_arguments", "delay and at exclude each other; give one of them")
    members = {name: getattr(event, name) for name in event.__struct_fields__}
    if any(members.get(name, UNSET) is not UNSET for name in given):
        raise Refusal("bad_arguments", "the event has times among its members; leave these or the options out")
    timed = TimedEvent(**members)
    for name, text in given.items():
        if text is not None:
            setattr(timed, name, text)
    try:
        normalize_times(timed)
    except Refusal as refusal:
        raise Refusal("bad_arguments", refusal.text) from None
    return timed


def times_of(line: bytes) -> tuple[int | None, int | None]:
    """Return the due time and the expiry (ms) of a stored line, None for those that it does not have."""
    # These members are the last ones of a line, so most other lines end here.
    if line[-3] not in _DIGITS:
        return None, None
    tail_at = max(0, len(line) - _TAIL_BYTES)
    for name in (b',"due":', b',"expires":'):
        at = line.rfind(name, tail_at)
        found = _TAIL.match(line, at) if at >= 0 else None
        if found is not None:
            due, expires = found[1], found[2]
            return None if due is None else int(due), None if expires is None else int(expires)
    return None, None


@lru_cache(maxsize=1000)
def _short_seconds(text: str) -> float:
    return parse_seconds(text)


def _duration_ms(name: str, text: str) -> int:
    try:
        # Publishers send the same few durations repeatedly.
        seconds = _short_seconds(text) if len(text) <= _SHORT else parse_seconds(text)
    except ValueError:
        raise Refusal(
            "bad_event", f"{name}={text[:40]!a} is not a duration; write it like 500ms, 5s, 2m or 1h"
        ) from None
    if seconds * 1000 > AHEAD_MAX_MS:
        raise Refusal("bad_event", f"{name}={text[:40]} is too long; the longest is {_AHEAD_MAX_DAYS}d")
    return round(seconds * 1000)


def _time_ms(name: str, value: int | str) -> int:
    at_ms = _iso_ms(name, value) if isinstance(value, str) else value
    if not 0 < at_ms <= _LAST_MS:
        raise Refusal("bad_event", f"{name} is not a time in milliseconds since 1970 UTC")
    return at_ms


def _iso_ms(name: str, text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        example = "2026-11-27T20:00:00Z or 10m" if name == "expires" else "2026-11-27T20:00:00Z"
        raise Refusal("bad_event", f"{name}: {text[:40]!a} is not a time; write it like {example}") from None
