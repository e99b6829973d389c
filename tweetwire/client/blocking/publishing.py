"""Publish many events from a thread, with a limit for unconfirmed ones."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias

from tweetwire.client.blocking.link import BlockingLink
from tweetwire.client.engine import PublishWindow
from tweetwire.protocol.errors import BrokerError, Refusal
from tweetwire.protocol.events import Event
from tweetwire.protocol.replies import Receipt

__all__ = ["CHUNK", "Answered", "BlockingPublisher"]

CHUNK: Final = 500

Answered: TypeAlias = Callable[[Receipt | Refusal], None]


class BlockingPublisher(PublishWindow):
    """Publishes events to one topic in order. It sends the next chunk once at most `most` events are unconfirmed."""

    def __init__(
        self, link: BlockingLink, topic: str, most: int, answered: Answered | None = None, options: str = ""
    ) -> None:
        super().__init__(topic, options)
        self._answered = answered
        self._link = link
        self._most = most
        self._receipts: list[Receipt] = []

    def publish(self, events: Iterable[Event]) -> list[Receipt]:
        """Publish events, and return their confirmations.

        Raises the first Refusal, and any exception of the iterator or of encoding an event. Before that, it waits until all
        events sent earlier have been answered. Raises BrokerLost, ProtocolError.
        """
        failure: Exception | None = None
        with self._link.exchange():
            try:
                self._publish_all(iter(events))
            except BrokerError:
                raise
            except Exception as error:  # noqa: BLE001 — raised again, once the replies have been read
                failure = error
            self._link.wait_until(lambda: self.unconfirmed == 0)
        if failure is not None:
            raise failure
        self._raise_failure()
        return self._receipts

    def _publish_all(self, events: Iterator[Event]) -> None:
        """Send events until all are sent or a refusal has come."""
        while self._refusal is None and (chunk := self._next(events)):
            self._link.engine.send_publishes(self, self._given_lines(chunk))
            self._link.wait_until(lambda: self.unconfirmed <= self._most or self._refusal is not None)

    def _next(self, events: Iterator[Event]) -> list[Event]:
        self._link.turns.is_in_iterator = True
        try:
            return list(islice(events, CHUNK))
        finally:
            self._link.turns.is_in_iterator = False

    def refuse(self, refusal: Refusal, *, is_numbered: bool = False) -> None:
        """Take the refusal of an event. Called by the engine."""
        super().refuse(refusal, is_numbered=is_numbered)
        if self._answered is not None:
            self._answered(refusal)

    def _confirmed(self, receipt: Receipt) -> None:
        self._receipts.append(receipt)
        if self._answered is not None:
            self._answered(receipt)
