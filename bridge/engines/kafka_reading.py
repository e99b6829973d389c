"""Read partitions of a Kafka topic from given offsets on. No consumer group is used, since our position is elsewhere."""

import time
from collections.abc import AsyncIterator, Mapping
from typing import Final, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from msgspec import structs

from bridge.central import Arrival, EngineUnreachable, NotThereYet
from bridge.engines.kafka_link import SLICE_S, KafkaLink, translated
from bridge.engines.kafka_messages import Header, arrival_of
from bridge.engines.kafka_topics import end_of, find_topic, start_of

__all__ = ["SHORT_WAIT_MS", "KafkaReader", "OffsetOutOfRange", "entries_of"]

_PAGE: Final = 2000
_WAIT_MS: Final = 200
SHORT_WAIT_MS: Final = 10
"""For a reader that stops at the end."""
_QUEUE_KB: Final = 16_384
"""The most kilobytes that the library fetches ahead."""
_OUT_OF_RANGE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
_PASSING: Final = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN})
"""Errors after which the library connects again by itself. `KafkaLink.check` decides whether they last."""


class OffsetOutOfRange(EngineUnreachable):
    """A partition does not have the offset at which reading should continue."""


class KafkaReader:
    """Reads some partitions of a topic. It sees only records of transactions that were committed.

    Args:
        link: The cluster.
        topic: The topic.
        wait_ms: How long the server waits for the first new record before it answers that a partition has no more.

    Attributes:
        next: For each partition, the offset from which reading continues.
    """

    def __init__(self, link: KafkaLink, topic: str, *, wait_ms: int = _WAIT_MS) -> None:
        self.next: dict[int, int] = {}
        self._link = link
        self._topic = topic
        self._wait_ms = wait_ms
        self._consumer: Consumer | None = None
        self._lanes: dict[int, str] = {}
        self._at_end: set[int] = set()
        self._error: KafkaError | None = None

    async def start(self, offsets: Mapping[int, int]) -> None:
        """Read from these offsets on, by partition."""
        await self._link.thread.run(self._start, dict(offsets))

    async def read(self, count: int, wait_s: float) -> list[Arrival]:
        """Return up to `count` entries. Waits up to `wait_s` seconds for one, once all partitions are read to their ends.

        Raises:
            OffsetOutOfRange: A partition does not have the offset at which reading should continue.
            EngineUnreachable: The cluster does not answer.
        """
        wait_until = time.monotonic() + wait_s
        answer_until = wait_until + self._link.login.timeout_s
        while True:
            found = await self._link.thread.run(self._take, count)
            if found:
                return found
            self._raise_error()
            now = time.monotonic()
            if len(self._at_end) < len(self.next):
                if now > answer_until:
                    raise EngineUnreachable(f"no answer within {self._link.login.timeout_s:g} s")
            elif now >= wait_until:
                return []

    async def aclose(self) -> None:
        """End the reading."""
        await self._link.thread.run(self._close)

    def _start(self, offsets: dict[int, int]) -> None:
        self._close()
        config = self._link.config() | {
            # The library asks for a group even if it is not used.
            "group.id": "tweetwire-bridge",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": self._wait_ms,
            # While its queue is full, the library would otherwise wait for a second before it fetches again.
            "fetch.queue.backoff.ms": 5,
            "queued.max.messages.kbytes": _QUEUE_KB,
        }
        self._consumer = Consumer(config)
        self._consumer.assign([TopicPartition(self._topic, one, offset) for one, offset in offsets.items()])
        self.next = offsets
        self._lanes = {one: str(one) for one in offsets}

    def _close(self) -> None:
        self._at_end, self._error = set(), None
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _take(self, count: int) -> list[Arrival]:
        if self._consumer is None:
            raise EngineUnreachable("there is no connection")
        try:
            messages = self._consumer.consume(count, 0)
            if not messages and self._error is None:
                messages = self._consumer.consume(1, SLICE_S)
                if messages and count > 1:
                    messages += self._consumer.consume(count - 1, 0)
        except KafkaException as error:
            raise translated(error.args[0]) from error
        return [arrival for message in messages if (arrival := self._arrival(message)) is not None]

    def _arrival(self, message: Message) -> Arrival | None:
        error = message.error()
        partition, offset = message.partition() or 0, message.offset()
        if error is None and offset is not None:
            self.next[partition] = offset + 1
            self._at_end.discard(partition)
            _, timestamp = message.timestamp()
            lane = self._lanes[partition]
            return arrival_of(
                lane,
                offset,
                max(0, timestamp),
                message.key(),
                message.value(),
                headers=cast("list[Header] | None", message.headers()),
            )
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self._error = error
        elif offset is not None:
            self.next[partition] = offset
            self._at_end.add(partition)
        return None

    def _raise_error(self) -> None:
        """Raise the error that ended the reading, once all entries before it were returned."""
        self._link.check()
        error, self._error = self._error, None
        if error is None or error.code() in _PASSING:
            return
        if error.code() in _OUT_OF_RANGE:
            raise OffsetOutOfRange(error.str())
        raise translated(error)


async def entries_of(link: KafkaLink, topic: str, partition: int | None = None) -> AsyncIterator[list[Arrival]]:
    """Yield the entries of one or all partitions, from the first one to the present end. Raises EngineUnreachable.

    The entries of a partition are in order. Those of several partitions come as the cluster sends them.
    """
    await link.connect()
    state = await find_topic(link, topic)
    if state is None:
        raise NotThereYet(f"there is no topic {topic}")
    partitions = range(state.partitions) if partition is None else [partition]
    starts = {one: await start_of(link, topic, one) for one in partitions}
    ends = {one: await end_of(link, topic, one, is_stable=False) for one in partitions}
    # A transaction that was confirmed may stay open to readers for a moment. Another one may stay open for longer.
    deadline = time.monotonic() + link.login.timeout_s
    reader = KafkaReader(link, topic, wait_ms=SHORT_WAIT_MS)
    try:
        await reader.start(dict(starts))
        while any(reader.next[one] < end for one, end in ends.items()):
            found = await reader.read(_PAGE, 0)
            for place, arrival in enumerate(found):
                if starts.pop(int(arrival.lane), 0) > 0:
                    found[place] = structs.replace(arrival, follows_removed=True)
                if not starts:
                    break
            if found:
                deadline = time.monotonic() + link.login.timeout_s
                yield found
            elif time.monotonic() > deadline:
                raise EngineUnreachable(f"the topic {topic} has an open transaction, which hides its newest entries")
    finally:
        await reader.aclose()
