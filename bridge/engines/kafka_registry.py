"""The registry of brokers in Kafka: a compacted topic, whose newest message of each key is the heartbeat of a broker.

Kafka shows no clock. It dates each message by the clock of its server, and an announcement comes before each look. So the
newest date, and the time that has passed here since it arrived, are the server's clock.
"""

import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from bridge.central import BROKERS_MAX, HEARTBEAT_BYTES_MAX, KEPT_S, EngineUnreachable, Sighting
from bridge.engines.kafka_link import SLICE_S, KafkaLink, KafkaLogin, translated
from bridge.engines.kafka_reading import SHORT_WAIT_MS, KafkaReader
from bridge.engines.kafka_topics import end_of, provide_topic, start_of
from bridge.engines.seen_brokers import SeenBrokers

__all__ = ["BROKERS", "KafkaRegistry"]

BROKERS: Final = "tweetwire.brokers"
_PARTITION: Final = 0
_PAGE: Final = 500
_OVERHEAD: Final = 1 << 10


class KafkaRegistry:
    """Keeps the heartbeats of brokers in a cluster."""

    def __init__(
        self, login: KafkaLogin, *, replicas: int = 0, kept_s: float = KEPT_S, brokers_max: int = BROKERS_MAX
    ) -> None:
        self._link = KafkaLink(login)
        self._replicas = replicas
        self._kept_s = kept_s
        self._reader = KafkaReader(self._link, BROKERS, wait_ms=SHORT_WAIT_MS)
        self._producer: Producer | None = None
        self._failed: KafkaError | None = None
        self._centre = ""
        self._seen = SeenBrokers(kept_s, brokers_max)
        self._newest_ms = 0
        self._newest_at = 0.0

    async def open(self) -> None:
        """Connect, and make the topic if it does not exist. Raises the errors of `Registry.open`."""
        await self.aclose()
        await self._link.connect()
        await self._look()
        self._producer = Producer(
            self._link.config() | {"message.timeout.ms": self._link.login.timeout_ms, "linger.ms": 0}
        )

    async def announce(self, broker: str, heartbeat: bytes) -> None:
        """Replace the heartbeat of a broker."""
        producer = self._producer
        if producer is None:
            raise EngineUnreachable("there is no connection")
        self._failed = None
        try:
            producer.produce(BROKERS, heartbeat, broker, _PARTITION, on_delivery=self._note)
        except (KafkaException, BufferError) as error:
            raise EngineUnreachable(str(error)) from error
        while await self._link.thread.run(producer.flush, SLICE_S):
            pass
        if self._failed is not None:
            raise translated(self._failed)

    async def sightings(self) -> list[Sighting]:
        """Return the newest heartbeat of each broker. Only the messages that came since the last call are read."""
        await self._look()
        end = await end_of(self._link, BROKERS, _PARTITION, is_stable=True)
        while self._reader.next[_PARTITION] < end:
            for arrival in await self._reader.read(_PAGE, 0):
                self._take(arrival.key, arrival.timestamp, arrival.value)
        now_ms = self._newest_ms + (time.monotonic() - self._newest_at) * 1000
        return self._seen.sightings(now_ms)

    async def aclose(self) -> None:
        """Close the connections."""
        held, self._producer = [self._producer], None
        self._centre = ""
        await self._reader.aclose()
        await self._link.thread.run(held.clear)
        await self._link.aclose()

    async def _look(self) -> None:
        """Make the topic if it does not exist, and read it from its start if it is another one than before."""
        config = {
            "cleanup.policy": "compact,delete",
            "retention.ms": str(round(self._kept_s * 1000)),
            "segment.bytes": str(4 << 20),
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": str(HEARTBEAT_BYTES_MAX + _OVERHEAD),
        }
        state = await provide_topic(self._link, BROKERS, partitions=1, replicas=self._replicas, config=config)
        if state.centre != self._centre:
            self._seen.clear()
            await self._reader.start({_PARTITION: await start_of(self._link, BROKERS, _PARTITION)})
            self._centre = state.centre

    def _take(self, broker: str | None, at_ms: int, heartbeat: bytes | None) -> None:
        if at_ms >= self._newest_ms:
            self._newest_ms, self._newest_at = at_ms, time.monotonic()
        if broker is not None and heartbeat is not None:
            self._seen.note(broker, at_ms, heartbeat)

    def _note(self, error: KafkaError | None, _: Message) -> None:
        self._failed = error
