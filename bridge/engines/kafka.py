"""Append to topics of Kafka.

The records of an append and the new position are one transaction, see `bridge.engines.kafka_positions`. After a write whose
outcome is unknown, `open` starts another producer. That ends the transaction one way or the other, and then the position shows
which way.
"""

import time
from collections.abc import AsyncIterator, Sequence
from typing import Final

from bridge.central import Arrival, CentralLost, Found, PositionMoved, Record, RecordRefused
from bridge.engines.kafka_link import KafkaLink, KafkaLogin
from bridge.engines.kafka_positions import Position, provide_positions, read_position
from bridge.engines.kafka_reading import entries_of
from bridge.engines.kafka_topics import find_topic, message_bytes_max, provide_topic
from bridge.engines.kafka_writing import BatchRefused, TopicMissing, TransactionWriter

__all__ = ["LOOK_EVERY_S", "KafkaDestination"]

LOOK_EVERY_S: Final = 30.0
"""How often a route looks whether its topic was deleted and made again. Such a topic takes our records without an error."""


class KafkaDestination:
    """Appends to a topic.

    Args:
        login: The cluster.
        central: The name of the central topic.
        topic: The topic whose events are sent.
        partitions: The number of partitions of a topic that the route makes; 0 for the server's default.
        replicas: The least number of replicas that the topic has; 0 for any.
        create: Whether to make the topic if it does not exist.
    """

    def __init__(
        self,
        login: KafkaLogin,
        central: str,
        topic: str,
        *,
        partitions: int = 0,
        replicas: int = 0,
        create: bool = True,
    ) -> None:
        self._link = KafkaLink(login)
        self._central = central
        self._topic = topic
        self._partitions = partitions
        self._replicas = replicas
        self._create = create
        self._key = ""
        self._centre = ""
        self._log = ""
        self._bytes_max = 0
        self._looked_at = 0.0
        self._position: Position | None = None
        self._writer: TransactionWriter | None = None

    async def open(self, identity: str, log: str = "") -> Found:
        """Fence other bridges of the route, and return the position of a broker. Raises the errors of `Destination.open`."""
        await self._drop_writer()
        await self._link.connect()
        state = await provide_topic(
            self._link, self._central, partitions=self._partitions, replicas=self._replicas, create=self._create
        )
        await provide_positions(self._link, self._replicas)
        self._bytes_max = await message_bytes_max(self._link, self._central)
        self._log = log
        self._key = f"{identity}/{self._topic}/{self._central}"
        self._centre, self._looked_at = state.centre, time.monotonic()
        self._position = await self._start_writer()
        found = self._position
        if found is None:
            return Found(None, state.centre)
        return Found(found.offset, state.centre, is_replaced=found.centre != state.centre, log=found.log)

    async def forget(self) -> None:
        """Delete our position."""
        await self._writing().write([], self._key, None)
        self._position = None

    async def append(self, records: Sequence[Record]) -> None:
        """Write records and the position, or nothing. Raises the errors of `Destination.append`."""
        await self._look_now_and_then()
        try:
            try:
                await self._write(records)
            except BatchRefused:
                await self._start_again(is_single=True)
                await self._write(records)
                await self._start_again()
        except RecordRefused:
            # The producer of a failed transaction is unusable, and the caller sends the other records.
            await self._start_again()
            raise
        except TopicMissing:
            await self._look()
            raise

    def entries(self) -> AsyncIterator[list[Arrival]]:
        """Read the whole topic."""
        return entries_of(self._link, self._central)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._drop_writer()
        await self._link.aclose()

    async def _write(self, records: Sequence[Record]) -> None:
        position = Position(records[-1].offset, self._centre, self._log)
        await self._writing().write(records, self._key, position.encode())
        self._position = position

    async def _start_again(self, *, is_single: bool = False) -> None:
        """Replace the producer. Raises PositionMoved if the position is not that of the last append."""
        await self._drop_writer()
        if await self._start_writer(is_single=is_single) != self._position:
            raise PositionMoved("another bridge has written to the topic")

    async def _start_writer(self, *, is_single: bool = False) -> Position | None:
        """Start a producer, and return the position, which only this producer can change from then on."""
        identifier = f"tweetwire/{self._key}"
        self._writer = TransactionWriter(self._link, self._central, identifier, self._bytes_max, is_single=is_single)
        await self._writer.start()
        return await read_position(self._link, self._key)

    async def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.aclose()

    def _writing(self) -> TransactionWriter:
        if self._writer is None:
            raise PositionMoved("the route is not open")
        return self._writer

    async def _look_now_and_then(self) -> None:
        if time.monotonic() - self._looked_at >= LOOK_EVERY_S:
            await self._look()

    async def _look(self) -> None:
        """Raise CentralLost if the topic is not the one that was opened."""
        state = await find_topic(self._link, self._central)
        if state is None or state.centre != self._centre:
            raise CentralLost(f"the topic {self._central} was deleted")
        self._looked_at = time.monotonic()
