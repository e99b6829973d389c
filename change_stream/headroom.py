"""How far the positions of topics are from the oldest change that MongoDB still has."""

from collections.abc import Sequence
from typing import Final

import anyio
from bson import Timestamp

from change_stream.cluster import Cluster
from change_stream.errors import WatchInterrupted
from change_stream.relay import Relay
from tweetwire.runtime.program import logger

__all__ = ["Headroom", "seconds_between"]

_EVERY_S: Final = 10.0
_LEAST_SHARE: Final = 0.1
"""A position in this share of the oplog, at its old end, is worth a warning."""


class Headroom:
    """The time of the oldest change in MongoDB's oplog, None until it is known or if the user may not read the oplog."""

    def __init__(self, cluster: Cluster, relays: Sequence[Relay]) -> None:
        self.oldest: Timestamp | None = None
        self._cluster = cluster
        self._relays = relays
        self._warned: set[str] = set()

    async def watch(self) -> None:
        """Read the oldest change every ten seconds, and warn once of each topic whose position is close to it."""
        while True:
            try:
                self.oldest = await self._cluster.oldest()
                if self.oldest is not None:
                    self._warn(self.oldest, await self._cluster.now())
            except WatchInterrupted:
                self.oldest = None
            await anyio.sleep(_EVERY_S)

    def of(self, relay: Relay) -> float:
        """Return the headroom of a topic in seconds, NaN if it is unknown."""
        if self.oldest is None or relay.outlet is None:
            return float("nan")
        return float(seconds_between(self.oldest, relay.outlet.position.time))

    def _warn(self, oldest: Timestamp, now: Timestamp) -> None:
        for relay in self._relays:
            left_s = self.of(relay)
            if left_s < _LEAST_SHARE * seconds_between(oldest, now):
                if relay.topic not in self._warned:
                    logger().warning(
                        "MongoDB will soon delete changes that this topic lacks", topic=relay.topic, left_s=left_s
                    )
                self._warned.add(relay.topic)
            else:
                self._warned.discard(relay.topic)


def seconds_between(oldest: Timestamp, position: Timestamp) -> int:
    """Return the seconds from the oldest change to a position, 0 if the position is older."""
    return max(0, position.time - oldest.time)
