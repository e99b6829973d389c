"""Decide how to continue when changes are lost, because MongoDB deleted them or the broker refused them."""

from bson import Timestamp

from change_stream.errors import CollectionReplaced, HistoryLost
from change_stream.message import Change
from change_stream.resume import StreamPosition
from change_stream.settings import HistoryPolicy
from change_stream.source import CollectionSource
from tweetwire.protocol.errors import StartError

__all__ = ["Bridge", "bridge", "gap"]

_CHOICES = "--on-history-lost resnapshot, from_time or now"


class Bridge:
    """The position where a topic continues, and the `gap` event to publish. `is_copy` is set if a snapshot follows."""

    def __init__(
        self, collection: str, lost: StreamPosition, position: StreamPosition, error: HistoryLost, *, is_copy: bool
    ) -> None:
        self.position = position
        self.is_copy = is_copy
        self.event = gap(collection, lost, position, str(error))


def gap(collection: str, start: StreamPosition, end: StreamPosition, reason: str) -> Change:
    """Make the message of a `gap` event: some of the changes between two positions are unknown."""
    change = Change("gap", collection, None, None, None, end.at_ms)
    change.gap = {"from": start.at_ms, "to": end.at_ms, "reason": reason}
    return change


async def bridge(
    source: CollectionSource, collection: str, lost: StreamPosition, error: HistoryLost, policy: HistoryPolicy
) -> Bridge:
    """Choose where to continue after lost history.

    Raises:
        StartError: the policy is to fail.
        WatchInterrupted, WatchRefused, HistoryLost: see `CollectionWatch.open`.
    """
    if policy == "fail" and isinstance(error, CollectionReplaced):
        raise StartError(f"{error}; choose how to continue: {_CHOICES}") from error
    if policy == "fail":
        raise StartError(
            f"MongoDB's history of {collection} no longer reaches back to {lost.time.as_datetime():%Y-%m-%dT%H:%M:%SZ} "
            f"({error}); choose how to continue: {_CHOICES}"
        ) from error
    if policy == "from_time":
        position = await _oldest_after(source, lost.time)
    else:
        position = StreamPosition(await source.now())
    return Bridge(collection, lost, position, error, is_copy=policy == "resnapshot")


async def _oldest_after(source: CollectionSource, time: Timestamp) -> StreamPosition:
    oldest = await source.oldest()
    # If that time is still in the oplog, only the token is unknown, and no change after the time is lost.
    return StreamPosition(time) if oldest <= time else StreamPosition(oldest).rewound()
