"""Write records and a position in one transaction.

A producer is fenced by its `transactional.id`: the newest producer of an id ends the transaction of an older one, and every
later write of the older one is refused. A producer whose transaction failed is never used again.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from bridge.central import EngineUnreachable, PositionMoved, Record, RecordRefused
from bridge.engines.kafka_link import KafkaLink, error_of, translated
from bridge.engines.kafka_messages import HeaderWriter
from bridge.engines.kafka_positions import PARTITION, POSITIONS

__all__ = ["BatchRefused", "TopicMissing", "TransactionWriter"]

_TIMEOUT_MS_MAX: Final = 900_000
"""The server refuses a longer transaction."""
_BATCH_BYTES_MAX: Final = 1_000_000
_BATCH_OVERHEAD: Final = 512
_NEVER: Final = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP}
)
"""The refusals of one record that stay."""
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }
)
_MISSING: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_ID,
    }
)
_NO_RECORD: Final = -1


class TopicMissing(EngineUnreachable):
    """The topic does not exist."""


class BatchRefused(Exception):
    """The cluster will never accept a batch, and does not say which of its records is the reason. Nothing was written."""


class TransactionWriter:
    """A producer for one route.

    Args:
        link: The cluster.
        topic: The central topic.
        transactional_id: Identifies the route at the cluster.
        bytes_max: The most bytes that the topic takes as one batch.
        is_single: Whether each record is a batch, so that a refusal names the record.
    """

    def __init__(
        self, link: KafkaLink, topic: str, transactional_id: str, bytes_max: int, *, is_single: bool = False
    ) -> None:
        self._link = link
        self._topic = topic
        self._headers = HeaderWriter()
        self._is_single = is_single
        self._failed: dict[int, KafkaError] = {}
        timeout_ms = min(link.login.timeout_ms, _TIMEOUT_MS_MAX)
        self._config: dict[str, Any] = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": timeout_ms,
            "partitioner": "murmur2_random",
            "message.max.bytes": max(1000, bytes_max),
            # The server refuses a batch as a whole, so it must never be larger than a message may be.
            "batch.size": max(1, min(_BATCH_BYTES_MAX, bytes_max - _BATCH_OVERHEAD)),
            # The commit sends what is waiting, so this only lets batches grow.
            "linger.ms": 50,
            "delivery.report.only.error": True,
        }
        if is_single:
            self._config["batch.num.messages"] = 1
        self._producer: Producer | None = None

    async def start(self) -> None:
        """Fence older producers of the route, and end their transaction. Raises EngineUnreachable."""
        producer = self._producer = Producer(self._link.config() | self._config)
        try:
            await self._link.thread.repeat(producer.init_transactions, self._link.login.timeout_s)
        except KafkaException as error:
            raise self._link.failure(error) from error

    async def write(self, records: Sequence[Record], key: str, position: bytes | None) -> None:
        """Write records and the position of the route, or nothing.

        Raises:
            PositionMoved: Another producer of the route has started. Nothing was written.
            RecordRefused: The cluster will never accept one of the records. Nothing was written.
            BatchRefused: The same, and the record is not known.
            TopicMissing: The topic was deleted. Nothing was written.
            EngineUnreachable: It is unknown whether the records were written.
        """
        producer = self._producer
        if producer is None:
            raise EngineUnreachable("there is no connection")
        try:
            await self._link.thread.run(self._produce, producer, records, key, position)
            await self._link.thread.repeat(producer.commit_transaction, self._link.login.timeout_s)
        except BufferError as error:
            raise EngineUnreachable("the library's queue is full; give a smaller batch_bytes") from error
        except KafkaException as error:
            raise self._failure(error) from error

    async def aclose(self) -> None:
        """Throw the producer away, with everything that it has not sent."""
        held, self._producer = [self._producer], None
        await self._link.thread.run(_discard, held)

    def _produce(self, producer: Producer, records: Sequence[Record], key: str, position: bytes | None) -> None:
        self._failed = {}
        producer.begin_transaction()
        produce, headers, topic, note = producer.produce, self._headers.headers, self._topic, self._note
        for record in records:
            report = partial(note, record.offset)
            try:
                produce(
                    topic,
                    record.value,
                    record.key,
                    on_delivery=report,
                    timestamp=record.timestamp,
                    headers=headers(record),  # type: ignore[arg-type]
                )
            except KafkaException as error:
                self._failed[record.offset] = error_of(error)
                raise
        producer.produce(POSITIONS, position, key, PARTITION, on_delivery=partial(note, _NO_RECORD))

    def _note(self, offset: int, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed[offset] = error

    def _failure(self, error: KafkaException) -> Exception:
        errors = [*self._failed.values(), error_of(error)]
        codes = {one.code() for one in errors}
        if codes & _FENCED:
            return PositionMoved(f"another bridge carries the route now ({error_of(error).str()})")
        refused = [offset for offset, one in self._failed.items() if one.code() in _NEVER and offset != _NO_RECORD]
        if len(refused) > 1 and not self._is_single:
            return BatchRefused(error_of(error).str())
        if refused:
            return RecordRefused(min(refused), self._failed[min(refused)].str())
        missing = next((one for one in errors if one.code() in _MISSING), None)
        if missing is not None:
            return TopicMissing(f"the topic {self._topic} is missing ({missing.str()})")
        return translated(errors[0])


def _discard(held: list[Producer | None]) -> None:
    producer = held.pop()
    if producer is not None:
        producer.purge(in_queue=True, in_flight=True, blocking=False)
