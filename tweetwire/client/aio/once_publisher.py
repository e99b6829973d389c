"""Pipelined publishing with `qos` 2: many messages take part in a handshake together."""

from collections import deque
from itertools import islice

from anyio.abc import TaskGroup

from tweetwire.client.aio.handshakes import AsyncOncePublishing
from tweetwire.client.aio.link import AsyncLink
from tweetwire.client.aio.publisher import OnConfirm, Publisher
from tweetwire.client.exactly_once.publishing import PublishResult
from tweetwire.client.exactly_once.steps import TOGETHER
from tweetwire.protocol.errors import BrokerError, Refusal
from tweetwire.protocol.events import Event
from tweetwire.protocol.replies import Receipt

__all__ = ["OncePublisher"]


class OncePublisher(Publisher):
    """A `Publisher` whose events are stored exactly once. Each stays in the spool until the broker has stored it.

    If an exception leaves the block, the client still sends the unconfirmed events while it is open. Later, the next
    client with this name and spool sends them. After HandshakeFailed the publisher cannot be used again, and the spool
    keeps its unconfirmed events.
    """

    fate = "they are kept in the spool and will be stored once"

    def __init__(
        self,
        link: AsyncLink,
        topic: str,
        window: int,
        on_confirm: OnConfirm | None,
        *,
        publishing: AsyncOncePublishing,
        tasks: TaskGroup,
    ) -> None:
        super().__init__(link, topic, window, on_confirm)
        self._publishing = publishing
        self._tasks = tasks
        self._waiting: deque[Event] = deque()
        self._is_at_work = False

    def _give(self, events: list[Event]) -> None:
        self._link.owner.check_thread()
        self._publishing.keep(self.topic, events)
        self._waiting += events
        self.unconfirmed += len(events)
        if not self._is_at_work:
            self._is_at_work = True
            self._tasks.start_soon(self._work)

    async def _work(self) -> None:
        """Publish the waiting events batch by batch. To keep the order, a batch starts after the previous batch is stored."""
        try:
            while self._waiting:
                batch = list(islice(self._waiting, TOGETHER))
                results = await self._carry_over(batch)
                for event in batch:
                    self._waiting.popleft()
                    self._take_result(results[event.id])
        except BrokerError as error:
            self._waiting.clear()
            self.fail(error)
        finally:
            self._is_at_work = False

    async def _carry_over(self, batch: list[Event]) -> dict[str, PublishResult]:
        results: dict[str, PublishResult] = {}
        while left := [event for event in batch if event.id not in results]:
            # `carry_over` has no result for an event that left the spool meanwhile, such as the second of two events
            # with the same id. It is kept and sent again, and the broker recognises its id.
            found = await self._publishing.carry_over(self._publishing.keep(self.topic, left))
            results |= {id_: result for (_, id_), result in found.items()}
        return results

    def _take_result(self, result: PublishResult) -> None:
        if isinstance(result, Receipt):
            self.confirm(result)
        elif isinstance(result, Refusal):
            self.refuse(result)
        else:
            raise result
