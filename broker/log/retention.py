"""The rule that decides which segments retention removes."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tweetwire.protocol.retention import Retention

__all__ = ["Span", "first_kept"]


class Span(NamedTuple):
    """A closed part of a log: the offset after its last event, its size in bytes, and when (ms) its last event arrived."""

    next: int
    size: int
    arrived_ms: int


def first_kept(
    closed: Sequence[Span], size: int, retention: Retention, needed: Callable[[], int | None], now_ms: int
) -> int:
    """Return the offset below which all events may be removed, 0 if none may.

    Args:
        closed: The closed parts of the log, in order.
        size: The size of the whole log in bytes.
        retention: The topic's retention.
        needed: Returns the lowest offset that a durable subscription has not settled, None if there is no durable
            subscription. Called once at most.
        now_ms: The current time.
    """
    kept = 0
    settled_below: int | None = None
    is_nobody = False
    for span in closed:
        if retention.at_most_bytes is None or size <= retention.at_most_bytes:
            is_due = _is_due(span, size, retention, now_ms)
            if not (is_due or retention.is_settled):
                break
            if settled_below is None:
                lowest = needed()
                is_nobody = lowest is None
                settled_below = 0 if lowest is None else lowest
            if span.next > settled_below and not (is_nobody and is_due):
                break
        kept = span.next
        size -= span.size
    return kept


def _is_due(span: Span, size: int, retention: Retention, now_ms: int) -> bool:
    """Return whether a part may be removed: it is too old, or the log is large enough without it."""
    is_old = retention.age_ms is not None and span.arrived_ms < now_ms - retention.age_ms
    return is_old or (retention.bytes is not None and size - span.size >= retention.bytes)
