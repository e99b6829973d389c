"""Find the places of a subscription's events in steps, since there may be many. See `broker.core.steps`."""

from broker.core.steps import SLICE, Steps, sliced
from broker.core.topic.subscription import Subscription

__all__ = ["lowest_open", "oldest_open", "place_of"]


def place_of(subscription: Subscription, offset: int, priority: int) -> Steps[tuple[str, int]]:
    """Return the state of an event that no consumer has, with a number:

    - ``waiting``, with the number of events before it,
    - ``delayed``, with the time (ms) when the pause ends,
    - ``dead``, with its letter's offset,
    - ``dying``, ``settled`` or ``before_start``, with 0.
    """
    until = yield from subscription.backlog.pause_end(offset)
    if until is not None:
        return "delayed", until
    if offset in subscription.dying:
        return "dying", 0
    if offset in subscription.dead:
        return "dead", subscription.dead[offset][1]
    before = yield from subscription.backlog.count_before(offset, priority)
    if before is not None:
        return "waiting", before
    return ("settled" if offset >= subscription.start else "before_start"), 0


def lowest_open(subscription: Subscription, start: int, count: int) -> Steps[list[int]]:
    """Return, in order, the lowest `count` offsets from `start` on that wait or are in flight."""
    found = yield from subscription.backlog.lowest_in_lanes(start, count)
    # Read these after the lanes: an event that a consumer has taken meanwhile is then found here.
    others = [*(offset for _, offset, _ in subscription.backlog.apart()), *subscription.offsets_in_flight()]
    others += subscription.schedule.lowest(max(start, subscription.start), count)
    size = max(SLICE, count)
    for at in range(0, len(others), size):
        found = sorted({*found, *(offset for offset in others[at : at + size] if offset >= start)})[:count]
        yield None
    return found


def oldest_open(subscription: Subscription) -> Steps[int | None]:
    """Return the lowest offset that waits or is in flight, None if there is none."""
    lowest = [*subscription.backlog.heads().values(), *subscription.schedule.lowest(subscription.start, 1)]
    apart = subscription.backlog.apart()
    lowest += (min(consumer.in_flight) for consumer in subscription.consumers if consumer.in_flight)
    lowest += yield from sliced(apart, lambda some: min(offset for _, offset, _ in some))
    return min(lowest, default=None)
