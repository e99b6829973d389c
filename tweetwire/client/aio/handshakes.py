"""Run the exactly-once handshakes on an event loop, also for messages that several tasks wait for."""

from collections.abc import Sequence
from typing import TypeVar

import anyio

from tweetwire.client.aio.link import AsyncLink
from tweetwire.client.engine.commands import Command
from tweetwire.client.exactly_once import OncePublishing, Spool
from tweetwire.client.exactly_once.publishing import Key, PublishResult
from tweetwire.client.exactly_once.steps import TOGETHER, Answer, Ask, Handshake, Pause, Wish
from tweetwire.client.logging import client_logger
from tweetwire.protocol.errors import BrokerError, ClientClosed, Refusal
from tweetwire.protocol.events import Event
from tweetwire.protocol.replies import Receipt

__all__ = ["AsyncHandshakes", "AsyncOncePublishing"]

T = TypeVar("T")

logger = client_logger(__name__)


class AsyncHandshakes:
    """Carries out the requests of handshakes over `link` and `spool`.

    Waits at most `answer_s` seconds for the answers to a step.
    """

    def __init__(self, link: AsyncLink, spool: Spool, answer_s: float) -> None:
        self._link = link
        self.spool = spool
        self._answer_s = answer_s

    async def run(self, handshake: Handshake[T]) -> T:
        """Run a handshake to its end, and return its result."""
        try:
            wish = next(handshake)
            while True:
                wish = handshake.send(await self._grant(wish))
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _grant(self, wish: Wish) -> list[Answer]:
        if isinstance(wish, Ask):
            return await self._ask(wish.lines)
        if isinstance(wish, Pause):
            await anyio.sleep(wish.seconds)
        else:
            await self.spool.sync()
        return []

    async def _ask(self, lines: list[bytes]) -> list[Answer]:
        commands = [self._link.send(Command(line)) for line in lines]
        # The time for a new connection counts, too.
        with anyio.move_on_after(self._answer_s):
            for command in commands:
                await self._link.wait(command)
        return [self._answer(command) for command in commands]

    def _answer(self, command: Command) -> Answer:
        if not command.is_done:
            return TimeoutError(f"no answer within {self._answer_s:g} s")
        return command.error if isinstance(command.error, Refusal) else command.outcome()


class _RunningHandshake:
    """A handshake in progress, with its results for all tasks that wait for one of its messages."""

    def __init__(self) -> None:
        self.has_ended = anyio.Event()
        self.results: dict[Key, PublishResult] = {}
        self.error: BrokerError | None = None


class AsyncOncePublishing:
    """Publishes messages exactly once, including those that an earlier process left in the spool."""

    def __init__(self, handshakes: AsyncHandshakes) -> None:
        self.handshakes = handshakes
        self._publishing = OncePublishing(handshakes.spool)
        self.keep = self._publishing.keep
        self._singles = anyio.Semaphore(TOGETHER)
        self._batches = anyio.Semaphore(1)
        self._running: dict[Key, _RunningHandshake] = {}

    async def publish(self, topic: str, event: Event) -> Receipt:
        """Publish an event exactly once.

        Raises Refusal, and HandshakeFailed, after which the event stays in the spool and is sent later.
        """
        (key,) = self.keep(topic, [event])
        result = (await self._carry_over([key], self._singles))[key]
        if isinstance(result, BrokerError):
            raise result
        return result

    async def carry_over(self, keys: Sequence[Key]) -> dict[Key, PublishResult]:
        """Publish messages of the spool in order.

        Returns the result of each message that is still in the spool at its turn. Raises ProtocolError, ClientClosed and
        SpoolUnusable.
        """
        results: dict[Key, PublishResult] = {}
        for batch in self._publishing.side_by_side(list(dict.fromkeys(keys))):
            results |= await self._carry_over(batch, self._batches)
        return results

    async def resume(self) -> None:
        """Publish the messages that an earlier process left in the spool."""
        left = self._publishing.left()
        if not left:
            return
        logger.info("sending messages left in the spool", messages=len(left))
        try:
            results = await self.carry_over(left)
        except ClientClosed:
            # This client is being left; the next one sends the messages.
            return
        except BrokerError as error:
            results = dict.fromkeys(left, error)
        for (topic, id_), result in results.items():
            if isinstance(result, BrokerError):
                logger.error("cannot send a message left in the spool", topic=topic, id=id_, reason=str(result))

    async def _carry_over(self, keys: list[Key], turns: anyio.Semaphore) -> dict[Key, PublishResult]:
        """Run the handshakes of `keys`, and wait for those that other tasks already run."""
        others = {key: running for key in keys if (running := self._running.get(key)) is not None}
        results = await self._shake_hands([key for key in keys if key not in others], turns)
        for key, running in others.items():
            await running.has_ended.wait()
            if running.error is not None:
                raise running.error
            # A cancelled task leaves its messages without results, so this task runs their handshakes.
            results |= {key: running.results[key]} if key in running.results else await self._carry_over([key], turns)
        return results

    async def _shake_hands(self, keys: list[Key], turns: anyio.Semaphore) -> dict[Key, PublishResult]:
        if not keys:
            return {}
        running = _RunningHandshake()
        self._running |= dict.fromkeys(keys, running)
        try:
            async with turns:
                running.results = await self.handshakes.run(self._publishing.carry_over(keys))
            return running.results
        except BrokerError as error:
            running.error = error
            raise
        finally:
            for key in keys:
                del self._running[key]
            running.has_ended.set()
