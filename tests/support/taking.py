"""Take events from a subscription of the blocking client."""

from tweetwire import StoredEvent, SyncSubscription

__all__ = ["taken"]

WITHIN_S = 30.0


def taken(subscription: SyncSubscription, count: int) -> list[StoredEvent]:
    """Take at least `count` events, in any number of batches."""
    events: list[StoredEvent] = []
    while len(events) < count:
        some = subscription.take(WITHIN_S)
        assert some, f"{len(events)} of {count}"
        events += some
    return events
