"""What to do when changes are lost: MongoDB no longer has them, or the broker did not take them."""

from bson import Timestamp

from broker.errors import StartError
from change_stream.cluster import Cluster
from change_stream.convert import Change
from change_stream.errors import HistoryLost
from change_stream.resume import Position
from change_stream.settings import HistoryPolicy

__all__ = ["Bridge", "bridge", "gap"]


class Bridge:
    """Where a topic goes on, and the `gap` event that tells what is not known; `is_copy` where a snapshot is next."""

    def __init__(
        self, collection: str, lost: Position, position: Position, error: HistoryLost, *, is_copy: bool
    ) -> None:
        self.position = position
        self.is_copy = is_copy
        self.event = gap(collection, lost, position, str(error))


def gap(collection: str, start: Position, end: Position, reason: str) -> Change:
    """The message that says what is not known: some of what happened between two positions."""
    change = Change("gap", collection, None, None, None, end.at_ms)
    change.gap = {"from": start.at_ms, "to": end.at_ms, "reason": reason}
    return change


async def bridge(
    cluster: Cluster, collection: str, lost: Position, error: HistoryLost, policy: HistoryPolicy
) -> Bridge:
    """Choose where to go on. Raises StartError where the policy is to fail, and as `Watch.open` does."""
    if policy == "fail":
        raise StartError(
            f"MongoDB's history of {collection} no longer reaches back to {lost.time.as_datetime():%Y-%m-%dT%H:%M:%SZ} "
            f"({error}); choose how to go on: --on-history-lost resnapshot, from_time or now"
        ) from error
    if policy == "from_time":
        position = await _oldest_after(cluster, lost.time)
    else:
        position = Position(await cluster.now())
    return Bridge(collection, lost, position, error, is_copy=policy == "resnapshot")


async def _oldest_after(cluster: Cluster, time: Timestamp) -> Position:
    oldest = await cluster.oldest()
    if oldest is None:
        return Position(await cluster.now())
    # With the time still in reach it was the token that is unknown: what lies behind the time is not lost.
    return Position(time) if oldest <= time else Position(oldest).rewound()
