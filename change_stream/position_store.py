"""Store the position of one producer on one topic at the broker, together with its events."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from tweetwire import BrokerError, Client, Event, ProducerPosition, Refusal
from tweetwire.backoff import Backoff
from tweetwire.runtime.program import logger

__all__ = ["PositionStore", "until_done"]

T = TypeVar("T")


class PositionStore:
    """Reads the position of `producer` on `topic` from the broker, and moves its checkpoint without an event.

    `epoch` is that of the producer's claim, None if it has none.
    """

    def __init__(self, client: Client, topic: str, producer: str) -> None:
        self._client = client
        self.topic = topic
        self.producer = producer
        self.epoch: int | None = None

    async def load(self) -> ProducerPosition | None:
        """Return the last sequence and checkpoint; None if this producer never published on the topic."""
        try:
            return await until_done(lambda: self._client.last(self.topic, self.producer))
        except Refusal as refusal:
            if refusal.code == "unknown_topic":
                return None
            raise

    async def save(self, checkpoint: str) -> None:
        """Move the checkpoint. Return once it is durable."""
        await until_done(lambda: self._client.checkpoint(self.topic, self.producer, checkpoint, epoch=self.epoch))

    async def publish(self, event: Event) -> None:
        """Publish one event and return once it is durable.

        A retry stores no duplicate, since the sequence identifies the event.
        """
        await until_done(lambda: self._client.publish(self.topic, event, epoch=self.epoch))


async def until_done(command: Callable[[], Awaitable[T]]) -> T:
    """Send the broker an idempotent command until it succeeds. Raises Refusal if it can never succeed."""
    backoff = Backoff()
    while True:
        try:
            return await command()
        except BrokerError as error:
            if isinstance(error, Refusal) and not error.is_retryable:
                raise
            logger().warning("broker did not answer, retrying", reason=str(error))
            await anyio.sleep(backoff.next_pause_s())
