"""Read topics of Kafka, also those that other programs write. Each partition has its own order, so each is an origin."""

import time
from collections.abc import AsyncIterator
from typing import Final

from bridge.central import Arrival, EngineUnreachable, EntriesRemoved, NotThereYet, Origin, Source
from bridge.engines.kafka import LOOK_EVERY_S
from bridge.engines.kafka_link import KafkaLink, KafkaLogin
from bridge.engines.kafka_messages import place_of, split_place
from bridge.engines.kafka_reading import KafkaReader, OffsetOutOfRange, entries_of
from bridge.engines.kafka_topics import TopicState, end_of, find_topic, start_of

__all__ = ["KafkaOrigin", "KafkaPartitions"]

_BATCH: Final = 1000


class KafkaPartitions:
    """The partitions of a topic."""

    def __init__(self, login: KafkaLogin, topic: str, *, batch: int = _BATCH) -> None:
        self._login = login
        self._link = KafkaLink(login)
        self._topic = topic
        self._batch = batch

    async def count(self) -> int:
        """Return the number of partitions. Raises EngineUnreachable, also as NotThereYet."""
        await self._link.connect()
        state = await find_topic(self._link, self._topic)
        if state is None:
            raise NotThereYet(f"there is no topic {self._topic}")
        return state.partitions

    def origin(self, partition: int) -> Origin:
        """Return a partition as an origin, not yet connected."""
        return KafkaOrigin(self._login, self._topic, partition, batch=self._batch)

    async def aclose(self) -> None:
        """Close the connection. `count` makes a new one."""
        await self._link.aclose()


class KafkaOrigin:
    """Reads one partition. A place is the partition and an offset."""

    def __init__(self, login: KafkaLogin, topic: str, partition: int = 0, *, batch: int = _BATCH) -> None:
        self._link = KafkaLink(login)
        self._topic = topic
        self._partition = partition
        self._batch = batch
        self._reader = KafkaReader(self._link, topic)
        self._centre = ""
        self._end = 0
        self._looked_at = 0.0
        self._expected = ""
        self._after: str | None = None
        self._is_gap = False
        self._held: list[Arrival] = []

    async def open(self, position: str, centre: str, *, is_exact: bool) -> Source:
        """Look whether reading can continue. Raises the errors of `Origin.open`."""
        await self._reader.aclose()
        await self._link.connect()
        self._after, self._held, self._is_gap = None, [], False
        self._expected = position if is_exact else ""
        state = await find_topic(self._link, self._topic)
        if state is None and position:
            return Source("", "", is_replaced=True)
        self._check(state)
        self._looked_at = time.monotonic()
        self._end = await end_of(self._link, self._topic, self._partition, is_stable=True)
        stored = await end_of(self._link, self._topic, self._partition, is_stable=False)
        last = place_of(self._partition, self._end - 1) if self._end else ""
        is_other = bool(centre) and centre != self._centre
        return Source(
            self._centre, last, is_replaced=bool(position) and (is_other or split_place(position)[1] >= stored)
        )

    async def read(self, after: str, wait_s: float) -> list[Arrival]:
        """Return entries after a place. Raises the errors of `Origin.read`."""
        await self._look_now_and_then()
        if self._after is None or after != self._after:
            start = split_place(after)[1] + 1 if after else await start_of(self._link, self._topic, self._partition)
            await self._reader.start({self._partition: start})
            self._after, self._held = after, []
        found, self._held = self._held, []
        try:
            found = found or await self._reader.read(self._batch, wait_s)
        except OffsetOutOfRange:
            await self._start_at_first(after)
            found = await self._reader.read(self._batch, wait_s)
        if found and self._is_gap:
            self._is_gap, self._held = False, found
            raise EntriesRemoved(after, found[0].place)
        if found:
            self._after = self._expected = found[-1].place
        return found

    def check_place(self, text: str) -> str:
        """Return the place before an offset. An offset after the end of the partition means its end."""
        if not (text.isdecimal() and text.isascii() and len(text) < 20):
            raise ValueError("write earliest, latest or an offset")
        before = min(int(text), self._end) - 1
        return place_of(self._partition, before) if before >= 0 else ""

    def entries(self) -> AsyncIterator[list[Arrival]]:
        """Read the whole partition."""
        return entries_of(self._link, self._topic, self._partition)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._reader.aclose()
        await self._link.aclose()

    def _check(self, state: TopicState | None) -> None:
        """Take the identity of the topic. Raises NotThereYet if it or the partition is missing."""
        if state is None:
            raise NotThereYet(f"there is no topic {self._topic}")
        if self._partition >= state.partitions:
            raise NotThereYet(f"the topic {self._topic} has no partition {self._partition}")
        self._centre = state.centre

    async def _start_at_first(self, after: str) -> None:
        """Continue with the first offset that is left, and remember that entries are missing before it."""
        first = await start_of(self._link, self._topic, self._partition)
        if after and split_place(after)[1] + 1 > first:
            raise EngineUnreachable(f"partition {self._partition} of the topic {self._topic} is shorter than before")
        self._is_gap = bool(after) and after == self._expected
        self._expected = ""
        await self._reader.start({self._partition: first})

    async def _look_now_and_then(self) -> None:
        """Raise EngineUnreachable if the topic was deleted or made again, so that the route is opened again."""
        if time.monotonic() - self._looked_at < LOOK_EVERY_S:
            return
        state = await find_topic(self._link, self._topic)
        if state is None or state.centre != self._centre:
            raise EngineUnreachable(f"the topic {self._topic} was deleted")
        self._looked_at = time.monotonic()
