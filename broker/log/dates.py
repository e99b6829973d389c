"""Estimates of arrival times from a log's timestamps, for logs that were written while the clock was wrong.

A log's parts are in the order of arrival. Within a part, timestamps never decrease: a new part begins when the clock was
set back. So if a part begins earlier than the previous one ended, the clock was wrong in one of them:

- If the new part continues the timestamps of an older part, the clock was ahead in the parts between these two.
- If the new part begins before all older parts, or before this program was written, its clock was behind.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

__all__ = ["Dated", "Search", "arrivals", "find_moment"]

WRITTEN_MS: Final = 1_577_836_800_000
"""2020-01-01, before this program was written. A computer with an earlier clock has lost the time."""
_NEVER: Final = 1 << 63

Search: TypeAlias = Callable[[int, int], int]
"""Returns the offset of a part's first event at or after a time, or the part's end.

The arguments are the part's number and the time (ms).
"""


class Dated(NamedTuple):
    """The timestamps (ms) of the first and the last event of a part of a log."""

    first_ms: int
    last_ms: int


def arrivals(parts: Sequence[Dated], now_ms: int | None) -> list[int]:
    """Return for each part the latest time (ms) at which its last event can have arrived.

    The times never decrease, and none is later than `now_ms`.
    """
    found = [min(part.last_ms, limit) for part, (limit, _) in zip(parts, _judged(parts, now_ms), strict=True)]
    for number in range(1, len(found)):
        found[number] = max(found[number], found[number - 1])
    return found


def find_moment(parts: Sequence[Dated], time_ms: int, now_ms: int | None, search: Search) -> int | None:
    """Return the offset of the first event stored at or after `time_ms`, None if that is the log's first event.

    If the timestamps do not decide it, returns the offset of an earlier event rather than of a later one.
    """
    judged, arrived = _judged(parts, now_ms), arrivals(parts, now_ms)
    for number in range(len(parts) - 1, -1, -1):
        part, (limit, is_behind) = parts[number], judged[number]
        if part.first_ms > limit:
            continue
        if not is_behind:
            if part.first_ms < time_ms:
                return search(number, time_ms)
            continue
        # The clock was behind when the part began. It may have been corrected within the part.
        found = search(number, time_ms)
        if found > search(number, arrived[number - 1] if number else WRITTEN_MS):
            return found
    return None


def _judged(parts: Sequence[Dated], now_ms: int | None) -> list[tuple[int, bool]]:
    """Return for each part the latest possible arrival time of its events, and whether the clock was behind then."""
    limit = _NEVER if now_ms is None else now_ms
    written_ms = WRITTEN_MS if WRITTEN_MS <= limit < _NEVER else 0
    is_behind: list[bool] = []
    lowest = _NEVER
    for part in parts:
        is_behind.append(part.first_ms < (written_ms if lowest == _NEVER else lowest))
        # A timestamp in the future is wrong, so it says nothing about the other parts.
        if written_ms <= part.first_ms <= limit:
            lowest = min(lowest, part.first_ms)
    limits: list[int] = []
    for number in range(len(parts) - 1, -1, -1):
        limits.append(limit)
        if number and not is_behind[number]:
            limit = min(limit, parts[number].first_ms)
    return list(zip(reversed(limits), is_behind, strict=True))
