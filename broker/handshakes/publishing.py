"""The client's half of exactly-once publishing."""

from typing import Final

import anyio
import structlog
from msgspec import structs

from broker.errors import BrokerError, Refusal
from broker.events import Event, encode_event
from broker.handshakes.spool import Outgoing, Spool
from broker.handshakes.steps import Ask, moved, say
from broker.protocol import replies
from broker.protocol.handshakes import Half, State, Step
from broker.protocol.replies import Receipt

__all__ = ["Publishing"]

WINDOW: Final = 500
"""So many messages are on their way at once; the broker remembers more than that of those that are done."""

HALF: Final = Half.CLIENT_PUBLISHING

logger = structlog.stdlib.get_logger()


class _Running:
    """A handshake that goes on, for all who wait for it."""

    def __init__(self) -> None:
        self.has_ended = anyio.Event()
        self.receipt: Receipt | None = None
        self.error: BrokerError | None = None


class Publishing:
    """Publishes what is given, and what a process before this one has left in the spool."""

    def __init__(self, ask: Ask, spool: Spool, answer_s: float) -> None:
        self._ask = ask
        self._spool = spool
        self._answer_s = answer_s
        self._window = anyio.Semaphore(WINDOW)
        self._running: dict[tuple[str, str], _Running] = {}

    async def publish(self, topic: str, event: Event) -> Receipt:
        """Have an event stored once. Raises Refusal, HandshakeFailed; what was not refused is kept and sent later."""
        key = (topic, event.id)
        if key not in self._running and key not in self._spool.outgoing:
            to = moved(HALF, State.NOTHING, Step.PUBLISH)
            self._spool.put([Outgoing(topic, event.id, encode_event(event).decode(), to.state)])
        return await self._carry_over(key)

    async def resume(self) -> None:
        """Send what was left, all at once."""
        left = list(self._spool.outgoing)
        if left:
            logger.info("sending messages that were left", messages=len(left))
        async with anyio.create_task_group() as tasks:
            for key in left:
                tasks.start_soon(self._resume_one, key)

    async def _resume_one(self, key: tuple[str, str]) -> None:
        try:
            await self._carry_over(key)
        except BrokerError as error:
            logger.error("a message that was left could not be sent", topic=key[0], id=key[1], reason=str(error))

    async def _carry_over(self, key: tuple[str, str]) -> Receipt:
        """Shake hands, or wait for a task that does; one that was cancelled leaves it to the next."""
        while (running := self._running.get(key)) is not None:
            await running.has_ended.wait()
            if running.error is not None:
                raise running.error
            if running.receipt is not None:
                return running.receipt
        running = self._running[key] = _Running()
        try:
            async with self._window:
                running.receipt = await self._shake_hands(self._spool.outgoing[key])
                return running.receipt
        except BrokerError as error:
            running.error = error
            raise
        finally:
            del self._running[key]
            running.has_ended.set()

    async def _shake_hands(self, message: Outgoing) -> Receipt:
        await self._spool.sync()
        while True:
            try:
                if message.state is State.KEPT:
                    await say(self._ask, f"pub2 {message.topic} {message.event}\n".encode(), self._answer_s)
                    message = await self._move(message, Step.REC)
                reply = await say(self._ask, f"pubrel {message.topic} {message.id}\n".encode(), self._answer_s)
            except Refusal as refusal:
                message = await self._refused(message, refusal)
                continue
            self._spool.put([structs.replace(message, state=moved(HALF, message.state, Step.COMP).state)])
            return replies.completion(reply)

    async def _move(self, message: Outgoing, step: Step) -> Outgoing:
        moved_message = structs.replace(message, state=moved(HALF, message.state, step).state)
        self._spool.put([moved_message])
        await self._spool.sync()
        return moved_message

    async def _refused(self, message: Outgoing, refusal: Refusal) -> Outgoing:
        """Begin anew where the broker has lost what it held; give up what it does not want."""
        if message.state is State.RECEIVED and refusal.code == "no_event":
            return await self._move(message, Step.NO_EVENT)
        if message.state is State.KEPT:
            self._spool.put([structs.replace(message, state=State.CONFIRMED)])
        raise refusal
