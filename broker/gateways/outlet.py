"""How a gateway writes into topics: as a client inside the broker's process, without a socket in between.

Always true: an event is told to be stored only when the broker has confirmed it, with the promise that the broker gives
to everybody; and the events of one topic are stored in the order in which they were given. What the disk refuses is given
again after a pause, before anything newer.
"""

import re
from collections import deque
from collections.abc import Iterable
from typing import Final

import anyio
import structlog

from broker.core import Session
from broker.errors import Refusal
from broker.events import IncomingEvent
from broker.protocol.commands import Publish
from broker.server import Server

__all__ = ["Outlet", "Placed"]

RETRY_S: Final = 1.0

_CONFIRMATION = re.compile(rb"\+OK (?:pub [^ ]+ (\d+)(?:-(\d+))? |dup )")

logger = structlog.stdlib.get_logger()

Placed = tuple[str, IncomingEvent]
"""A topic and an event for it; once stored, the event knows its offset."""


class Outlet:
    """Publishes as `name`; `dropped` counts what there was no topic for. One task at a time asks for what is `stored`."""

    def __init__(self, server: Server, name: str) -> None:
        self.session: Session = server.admit(name, self._wake)
        self.dropped = 0
        self._server = server
        self._unanswered: deque[Placed] = deque()
        self._again: list[Placed] = []
        self._has_replies = anyio.Event()

    @property
    def unconfirmed(self) -> int:
        """How many events are not known to be stored."""
        return len(self._unanswered) + len(self._again)

    @property
    def is_failing(self) -> bool:
        """Whether something was refused and has not come again."""
        return bool(self._again)

    def give(self, topic: str, events: list[IncomingEvent]) -> None:
        """Publish behind what was given before; `Server.carry_out` has to follow."""
        if self._again:
            self._again += [(topic, event) for event in events]
        else:
            self._publish(topic, events)

    async def stored(self) -> list[Placed]:
        """Wait until something is stored; returns it, the events of one topic in their order."""
        while True:
            if stored := self._take_replies():
                return stored
            if self._again and not self._unanswered:
                await anyio.sleep(RETRY_S)
                self._give_again()
            else:
                self._has_replies = anyio.Event()
                await self._has_replies.wait()

    def close(self) -> None:
        """Leave the broker."""
        self._server.dismiss(self.session)

    def _wake(self) -> None:
        self._has_replies.set()

    def _publish(self, topic: str, events: list[IncomingEvent]) -> None:
        placed = [(topic, event) for event in events]
        try:
            self._server.broker.topic(topic)
        except Refusal as refusal:
            self._refuse(placed, refusal)
            return
        self._unanswered += placed
        self._server.broker.execute(self.session, Publish(topic, events), self._server.now_ms())

    def _refuse(self, placed: list[Placed], refusal: Refusal) -> None:
        """Keep for later what has no topic yet, or lose it where there may be no topic more."""
        if refusal.code == "disk":
            self._again += placed
            self._has_replies.set()
            return
        self.dropped += len(placed)
        logger.error("events of a gateway have no topic and are dropped", topic=placed[0][0], reason=refusal.text)

    def _give_again(self) -> None:
        again, self._again = self._again, []
        for topic, events in _runs(again):
            self.give(topic, events)
        self._server.carry_out()

    def _take_replies(self) -> list[Placed]:
        stored: list[Placed] = []
        for line in self.session.take_output().splitlines():
            confirmed = _CONFIRMATION.match(line)
            if confirmed is not None:
                first, last = confirmed.groups()
                count = int(last) - int(first) + 1 if last else 1
                stored += [self._unanswered.popleft() for _ in range(count)]
            elif line.startswith(b"-"):
                self._take_refusal(line)
        return stored

    def _take_refusal(self, line: bytes) -> None:
        if not self._again:
            logger.error("the disk refuses what a gateway has to store; trying again", reason=line.decode())
        self._again.append(self._unanswered.popleft())


def _runs(placed: Iterable[Placed]) -> list[tuple[str, list[IncomingEvent]]]:
    """Put events for one topic together, each topic's in their order."""
    by_topic: dict[str, list[IncomingEvent]] = {}
    for topic, event in placed:
        by_topic.setdefault(topic, []).append(event)
    return list(by_topic.items())
