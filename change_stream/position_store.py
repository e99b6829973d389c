"""The position of one producer on one topic, kept by the broker with the events themselves."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from broker import BrokerError, Client, Event, ProducerPosition, Refusal
from broker.program import logger
from change_stream.backoff import Backoff

__all__ = ["PositionStore", "until_done"]

T = TypeVar("T")


class PositionStore:
    """Asks the broker where `producer` stands on `topic`, and moves its checkpoint where no event does."""

    def __init__(self, client: Client, topic: str, producer: str) -> None:
        self._client = client
        self.topic = topic
        self.producer = producer

    async def load(self) -> ProducerPosition | None:
        """Return the last sequence and checkpoint; None where this producer never published on the topic."""
        try:
            return await until_done(lambda: self._client.last(self.topic, self.producer))
        except Refusal as refusal:
            if refusal.code == "unknown_topic":
                return None
            raise

    async def save(self, checkpoint: str) -> None:
        """Move the checkpoint; returns when that is durable."""
        await until_done(lambda: self._client.checkpoint(self.topic, self.producer, checkpoint))

    async def publish(self, event: Event) -> None:
        """Publish one event and wait until it is durable; its producer and sequence make trying again harmless."""
        await until_done(lambda: self._client.publish(self.topic, event))


async def until_done(command: Callable[[], Awaitable[T]]) -> T:
    """Give the broker an idempotent command until it carries it out.

    Raises Refusal where it never will.
    """
    backoff = Backoff()
    while True:
        try:
            return await command()
        except BrokerError as error:
            if isinstance(error, Refusal) and not error.is_retryable:
                raise
            logger().warning("the broker did not answer, trying again", reason=str(error))
            await anyio.sleep(backoff.pause_s())
