"""The outlet: a gateway publishes through it like a client, but inside the broker's process and without a socket.

Always true:

- an event is reported as stored only after the broker has confirmed it, as it confirms events to every client;
- the events of one topic are stored in the order in which they were given. Events that the disk refuses are published
  again after a pause, before newer ones.
"""

import re
from collections import deque
from itertools import groupby
from typing import Final, NamedTuple

import anyio
import structlog

from broker.core import Session
from broker.server import Server
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.events import IncomingEvent
from tweetwire.protocol.verbs.publishing import Publish

__all__ = ["Outlet", "Stored"]

RETRY_S: Final = 1.0

_CONFIRMATION = re.compile(rb"\+OK (?:pub [^ ]+ (\d+)(?:-(\d+))? |dup [^ ]+ (\d+))")

logger = structlog.stdlib.get_logger()


class Stored(NamedTuple):
    """Stored events of a topic: their number and first offset. A duplicate is reported with the offset of its original."""

    topic: str
    first: int
    events: int


class _Given(NamedTuple):
    """Events for one topic, in order."""

    topic: str
    events: list[IncomingEvent]


class Outlet:
    """Publishes under the client name `name`. Only one task at a time may wait for `stored`.

    `unconfirmed` counts the events that are not confirmed yet, `dropped` the events whose topic could not be created.
    """

    def __init__(self, server: Server, name: str) -> None:
        self.session: Session = server.admit(name, self._wake)
        self.unconfirmed = 0
        self.dropped = 0
        self._server = server
        self._unanswered: deque[_Given] = deque()
        self._refused: list[_Given] = []
        # The events that were given after the refused ones. They are not published yet.
        self._later: list[_Given] = []
        # How many events at the head of `_unanswered` have been refused before.
        self._repeated = 0
        self._has_told = False
        # A time rather than a sleep, since the caller of `stored` may cancel it before the pause is over.
        self._again_at = 0.0
        self._stored: list[Stored] = []
        self._has_replies = anyio.Event()

    @property
    def is_failing(self) -> bool:
        """Whether events were refused and have not been stored since."""
        return bool(self._repeated) or self._is_refused

    def give(self, topic: str, events: list[IncomingEvent]) -> None:
        """Publish events after the events of earlier calls. The caller must call `Server.do_work` afterwards."""
        self._take_replies()
        self.unconfirmed += len(events)
        given = _Given(topic, events)
        if self._is_refused:
            self._later.append(given)
        else:
            self._publish(given)

    async def stored(self) -> list[Stored]:
        """Wait until events are stored, and return them. The events of one topic are in order."""
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
        """End the session in the broker."""
        self._server.dismiss(self.session)

    @property
    def _is_refused(self) -> bool:
        """Whether events were refused that must be stored before new ones. Their refusal may not have been read yet."""
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
        """Keep events whose topic the disk refuses, for later. Drop them if the topic is refused for another reason."""
        if refusal.code == "disk":
            self._keep_refused([given], refusal.text)
            self._has_replies.set()
            return
        self.dropped += len(given.events)
        self.unconfirmed -= len(given.events)
        logger.error(
            "dropped events of a gateway, since their topic cannot be created", topic=given.topic, reason=refusal.text
        )

    def _give_again(self) -> None:
        again, self._refused, self._later = [*self._refused, *self._later], [], []
        for given in _by_topic(again):
            self._publish(given)
        self._repeated = sum(len(given.events) for given in self._unanswered)
        self._server.do_work()

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
        """Remove and return the first `count` unanswered events."""
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
            logger.error("the disk refuses the events of a gateway; retrying", reason=reason)
        self._has_told = True
        self._again_at = anyio.current_time() + RETRY_S
        self._refused += refused


def _by_topic(given: list[_Given]) -> list[_Given]:
    """Group events by topic, keeping the order within each topic."""
    by_topic: dict[str, list[IncomingEvent]] = {}
    for topic, events in given:
        by_topic.setdefault(topic, []).extend(events)
    return [_Given(topic, events) for topic, events in by_topic.items()]
