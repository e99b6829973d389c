"""The positions of all routes to a cluster, in one compacted topic.

A position is written in the transaction of its records. All positions are in partition 0 of the topic, so one read finds the
newest one of a route. The key is ``<broker>/<topic>/<central topic>``, since a topic may go to several central topics.
"""

import time
from typing import Final

import msgspec
from msgspec import Struct

from bridge.central import EngineUnreachable
from bridge.engines.kafka_link import KafkaLink
from bridge.engines.kafka_reading import SHORT_WAIT_MS, KafkaReader
from bridge.engines.kafka_topics import end_of, provide_topic, start_of
from tweetwire.protocol.errors import StartError

__all__ = ["PARTITION", "POSITIONS", "Position", "provide_positions", "read_position"]

POSITIONS: Final = "tweetwire.positions"
PARTITION: Final = 0
_SETTINGS: Final = {
    "cleanup.policy": "compact",
    # Only segments that are complete are compacted. With small ones, the topic stays short.
    "segment.bytes": str(8 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
_TAIL: Final = 2000
_PAGE: Final = 2000


class Position(Struct, frozen=True):
    """The position of a route.

    Attributes:
        offset: The offset of our last event.
        centre: The identity of the central topic that has it.
        log: The id of the log in which the offset counts, "" if the broker shows none.
    """

    offset: int
    centre: str
    log: str = ""

    def encode(self) -> bytes:
        """Return the position as the value of a message."""
        return msgspec.json.encode(self)


async def provide_positions(link: KafkaLink, replicas: int) -> None:
    """Make the topic of the positions if it does not exist. Raises the errors of `provide_topic`."""
    await provide_topic(link, POSITIONS, partitions=1, replicas=replicas, config=_SETTINGS)


async def read_position(link: KafkaLink, key: str) -> Position | None:
    """Return the newest position of a route, None if there is none.

    Call this after `init_transactions` only: then no earlier transaction of the route can still change its position. A
    transaction of another route may hide what follows it. This waits until that transaction has ended.

    Raises:
        EngineUnreachable: The cluster does not answer, or a transaction of another route stays open.
        StartError: Another program has written the position.
    """
    end = await end_of(link, POSITIONS, PARTITION, is_stable=False)
    reader = KafkaReader(link, POSITIONS, wait_ms=SHORT_WAIT_MS)
    try:
        first = await start_of(link, POSITIONS, PARTITION)
        for start in [end - _TAIL, first] if end - _TAIL > first else [first]:
            found = await _read_from(link, reader, key, start, end)
            if found is not None:
                return None if found == b"" else _decode(key, found)
    finally:
        await reader.aclose()
    return None


async def _read_from(link: KafkaLink, reader: KafkaReader, key: str, start: int, end: int) -> bytes | None:
    """Return the newest value of a key between two offsets, None if there is none, and b"" if it was deleted."""
    await reader.start({PARTITION: start})
    deadline = time.monotonic() + link.login.timeout_s
    found: bytes | None = None
    while reader.next[PARTITION] < end:
        arrivals = await reader.read(_PAGE, 0)
        for arrival in arrivals:
            if arrival.key == key:
                found = arrival.value or b""
        if not arrivals and time.monotonic() > deadline:
            raise EngineUnreachable(
                f"the topic {POSITIONS} has an open transaction of another route; the server ends it after a while"
            )
    return found


def _decode(key: str, value: bytes) -> Position:
    try:
        return msgspec.json.decode(value, type=Position)
    except msgspec.MsgspecError as error:
        raise StartError(
            f"{POSITIONS} has a position of {key} that no bridge wrote: {value.decode(errors='replace'):.80}"
        ) from error
