"""How a gateway writes into topics: as a client inside the broker's process, without a socket in between.

Always true: an event is told to be stored only when the broker has confirmed it, with the promise that the broker gives
to everybody; and the events of one topic are stored in the order in which they were given. What the disk refuses is given
again after a pause, before anything newer.
"""

import re
from collections import deque
from itertools import groupby
from typing import Final, NamedTuple

import anyio
import structlog

from broker.core import Session
from broker.errors import Refusal
from broker.events import IncomingEvent
from broker.protocol.commands import Publish
from broker.server import Server

__all__ = ["Outlet", "Stored"]

RETRY_S: Final = 1.0

_CONFIRMATION = re.compile(rb"\+OK (?:pub [^ ]+ (\d+)(?:-(\d+))? |dup [^ ]+ (\d+))")

logger = structlog.stdlib.get_logger()


class Stored(NamedTuple):
    """So many events that a topic has from offset `first` on, or one that it has had there before."""

    topic: str
    first: int
    events: int


class _Given(NamedTuple):
    """Events for one topic, behind each other."""

    topic: str
    events: list[IncomingEvent]


class Outlet:
    """Publishes as `name`. One task at a time asks for what is `stored`.

    `unconfirmed` counts the events that are not known to be stored, `dropped` what there was no topic for.
    """

    def __init__(self, server: Server, name: str) -> None:
        self.session: Session = server.admit(name, self._wake)
        self.unconfirmed = 0
        self.dropped = 0
        self._server = server
        self._unanswered: deque[_Given] = deque()
        self._refused: list[_Given] = []
        # Given after those that were refused, and not published yet.
        self._later: list[_Given] = []
        # How many of the first ones that are unanswered have been refused before.
        self._repeated = 0
        self._has_told = False
        # A time, not a pause to be slept through: who asks for what is stored may ask for less time than the pause.
        self._again_at = 0.0
        self._stored: list[Stored] = []
        self._has_replies = anyio.Event()

    @property
    def is_failing(self) -> bool:
        """Whether something was refused and has not been stored since."""
        return bool(self._repeated) or self._is_refused

    def give(self, topic: str, events: list[IncomingEvent]) -> None:
        """Publish behind what was given before; `Server.carry_out` has to follow."""
        self._take_replies()
        self.unconfirmed += len(events)
        given = _Given(topic, events)
        if self._is_refused:
            self._later.append(given)
        else:
            self._publish(given)

    async def stored(self) -> list[Stored]:
        """Wait until something is stored; returns it, the events of one topic in their order."""
        while True:
            self._take_replies()
            if self._stored:
                stored, self._stored = self._stored, []
                return stored
            if self._refused and not self._unanswered:
                await anyio.sleep_until(self._again_at)
                self._give_again()
            else:
                self._has_replies = anyio.Event()
                await self._has_replies.wait()

    def close(self) -> None:
        """Leave the broker."""
        self._server.dismiss(self.session)

    @property
    def _is_refused(self) -> bool:
        """Whether something must be stored before what is given now; its refusal may not be here yet."""
        return bool(self._refused) or self.session.outbox.is_refusing

    def _wake(self) -> None:
        self._has_replies.set()

    def _publish(self, given: _Given) -> None:
        try:
            self._server.broker.topic(given.topic)
        except Refusal as refusal:
            self._do_without(given, refusal)
            return
        self._unanswered.append(given)
        self._server.broker.execute(self.session, Publish(given.topic, given.events), self._server.now_ms())

    def _do_without(self, given: _Given, refusal: Refusal) -> None:
        """Keep for later what has no topic yet, or lose it where there may be no topic more."""
        if refusal.code == "disk":
            self._keep_refused([given], refusal.text)
            self._has_replies.set()
            return
        self.dropped += len(given.events)
        self.unconfirmed -= len(given.events)
        logger.error("events of a gateway have no topic and are dropped", topic=given.topic, reason=refusal.text)

    def _give_again(self) -> None:
        again, self._refused, self._later = [*self._refused, *self._later], [], []
        for given in _by_topic(again):
            self._publish(given)
        self._repeated = sum(len(given.events) for given in self._unanswered)
        self._server.carry_out()

    def _take_replies(self) -> None:
        if not self.session.outbox.size:
            return
        for is_refusal, lines in groupby(self.session.take_output().splitlines(), lambda line: line.startswith(b"-")):
            if is_refusal:
                refusals = list(lines)
                self._keep_refused(self._take_unanswered(len(refusals)), refusals[0].decode())
            else:
                for line in lines:
                    self._take_confirmation(line)

    def _take_confirmation(self, line: bytes) -> None:
        confirmed = _CONFIRMATION.match(line)
        if confirmed is None:
            return
        first, last, duplicate = confirmed.groups()
        count = int(last) - int(first) + 1 if last else 1
        topic = self._take_unanswered(count)[0].topic
        self.unconfirmed -= count
        self._has_told = self._has_told and self.is_failing
        self._stored.append(Stored(topic, int(first or duplicate), count))

    def _take_unanswered(self, count: int) -> list[_Given]:
        """Take off the first `count` events."""
        taken: list[_Given] = []
        self._repeated = max(0, self._repeated - count)
        while count:
            topic, events = self._unanswered.popleft()
            if len(events) > count:
                self._unanswered.appendleft(_Given(topic, events[count:]))
            taken.append(_Given(topic, events[:count]))
            count -= len(taken[-1].events)
        return taken

    def _keep_refused(self, refused: list[_Given], reason: str) -> None:
        if not self._has_told:
            logger.error("the disk refuses what a gateway has to store; trying again", reason=reason)
        self._has_told = True
        self._again_at = anyio.current_time() + RETRY_S
        self._refused += refused


def _by_topic(given: list[_Given]) -> list[_Given]:
    """Put events for one topic together, each topic's in their order."""
    by_topic: dict[str, list[IncomingEvent]] = {}
    for topic, events in given:
        by_topic.setdefault(topic, []).extend(events)
    return [_Given(topic, events) for topic, events in by_topic.items()]
