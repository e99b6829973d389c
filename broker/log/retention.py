"""Which segments have had their time."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.protocol.retention import Retention

__all__ = ["Span", "first_kept"]


class Span(NamedTuple):
    """A closed part of a log: the offset behind its last event, its bytes, and when (ms) its last event was stored."""

    next: int
    size: int
    last_timestamp: int


def first_kept(
    closed: Sequence[Span], size: int, retention: Retention, needed: Callable[[], int | None], now_ms: int
) -> int:
    """Return the offset below which everything may go, 0 where nothing may.

    `closed` are a log's closed parts in order, `size` is the whole log's, and `needed` tells the lowest offset that a
    durable subscription has not settled (None where there is no such subscription); it is asked once at most.
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
    """Whether a part is too old, or enough is behind it."""
    is_old = retention.age_ms is not None and span.last_timestamp < now_ms - retention.age_ms
    return is_old or (retention.bytes is not None and size - span.size >= retention.bytes)
