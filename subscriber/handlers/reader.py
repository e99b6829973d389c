"""One handler's subscription: reads events, begins suspects, and reports each event's outcome to the broker.

An event of a lost connection is neither handled nor settled, since the broker delivers it again.

A suspect reaches its function only after two things were sent to the broker: the settlements of all events before it, and
its ``begin``. No other ``begin`` is sent before the function has reached its first ``await``. So when the process dies, the
broker knows which suspects the functions were working on.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import anyio
from anyio import lowlevel
from anyio.streams.memory import MemoryObjectSendStream

from subscriber.handlers.delivery import Delivery
from subscriber.handlers.failures import Reason
from tweetwire import Client, Refusal, StoredEvent, Subscription
from tweetwire.protocol.errors import BrokerError, StartError
from tweetwire.protocol.requests import nack_line
from tweetwire.runtime.program import logger

__all__ = ["EventReader", "Item"]

_NOT_IN_FLIGHT = frozenset({"stale", "not_subscribed"})

Item: TypeAlias = tuple[StoredEvent, int]
"""An event, and the number of the client's connection over which it arrived."""


class EventReader:
    """The state that one handler's workers share."""

    def __init__(self, client: Client, subscription: Subscription, concurrency: int) -> None:
        self._client = client
        self._subscription = subscription
        self._concurrency = concurrency
        self._beginning = anyio.Lock()
        # A task takes one of these turns to handle a suspect, and all of them to handle a suspect while no other is
        # handled.
        self._turns = anyio.Semaphore(concurrency)

    async def read(self, send: "MemoryObjectSendStream[Item]", stop: anyio.Event) -> None:
        """Pass on arriving events until `stop`. Raises StartError if the broker ends the subscription before that."""
        async with send, anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when, stop, tasks.cancel_scope)
            try:
                async for batch in self._subscription:
                    for event in batch:
                        await send.send((event, self._client.connects))
            except BrokerError as error:
                raise StartError(f"{self._name} cannot continue: {error}") from error
            if not stop.is_set():
                raise StartError(f"{self._name} was ended by the broker")

    def is_current(self, connects: int) -> bool:
        """Whether the connection over which an event arrived is still the client's."""
        return connects == self._client.connects

    @asynccontextmanager
    async def turn(self, suspect: StoredEvent, connects: int) -> AsyncIterator[bool]:
        """Wait until a suspect may be handled, and begin it. Yield whether its connection is still current.

        A suspect that has failed before is handled while no other suspect is handled, so that no other one fails with it. The
        caller must enter the function without another ``await``.
        """
        needed, taken = self._concurrency if suspect.attempt > 1 else 1, 0
        try:
            async with self._beginning:
                while taken < needed:
                    await self._turns.acquire()
                    taken += 1
                if self.is_current(connects):
                    await self._subscription.mark_begun([suspect])
            yield self.is_current(connects)
        finally:
            for _ in range(taken):
                self._turns.release()

    async def settle(self, delivery: Delivery, connects: int) -> None:
        """Ack an event, or nack it with the reason. If its connection is lost, do nothing, since it is delivered again."""
        if not self.is_current(connects):
            return
        event = delivery.event
        if delivery.reason is None:
            await self._subscription.ack([event])
            return
        # If the service was cancelled and the handler then raised another error, this is not a failed try: the event waits
        # again.
        await lowlevel.checkpoint_if_cancelled()
        refusal = await self._refuse(event, delivery.reason)
        if refusal is None:
            return
        if refusal.code in _NOT_IN_FLIGHT:
            logger().warning("event is no longer in flight at the broker", event_id=event.id, reason=str(refusal))
            return
        logger().error("broker refused the reason of a failure", event_id=event.id, reason=str(refusal))
        await self._refuse(event, None)

    async def _refuse(self, event: StoredEvent, reason: Reason | None) -> Refusal | None:
        """Nack an event. Return the broker's refusal if there is one."""
        words = reason or (None, None, None)
        try:
            await self._client.ask(nack_line(event.topic, event.offset, *words))
        except Refusal as refusal:
            return refusal
        return None

    @property
    def _name(self) -> str:
        return f"the subscription {self._subscription.known_as} of {self._subscription.topic}"


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
