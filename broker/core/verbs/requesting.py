"""Requests that wait for their replies, and the replies on their way to the requesters.

A reply is an event of the topic `REPLIES`. Its `key` is the token of the requester's connection, and its `parent` is the id of
the request. The broker finds the waiting request when it accepts the reply, and sends the reply once its log has it.

Always true:

- a request waits until its reply was sent, its time is over, its event could not be stored, or its connection has ended;
- a connection has at most `WAITING_MAX` waiting requests; a reply is kept by its offset until the connection has room for it.
"""

import heapq
import secrets
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Final

from msgspec import UNSET

from broker.core.desk import Desk
from broker.core.session import Session
from broker.core.topic.topic import Topic
from broker.core.verbs.handler import Handlers
from broker.log import Batch
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.events import IncomingEvent
from tweetwire.protocol.notices import reply_line, timeout_line
from tweetwire.protocol.request_reply import REPLIES, REPLY_TO
from tweetwire.protocol.timing import TimedEvent
from tweetwire.protocol.verbs.requesting import Request

__all__ = ["Requesting"]

WAITING_MAX: Final = 1000
"""The most requests of one connection that may wait. Replies that the connection has no room for do not stay in memory."""

_TOKEN_BYTES: Final = 16
_AGAIN_MS: Final = 1000
_OVER_MIN: Final = 1000
"""Deadlines of requests that no longer wait are removed together, once there are this many more of them than of the others."""


class _Waiting:
    """A request that waits. `reply` is the offset of its reply once there is one."""

    __slots__ = ("id", "offset", "reply", "requester", "topic")

    def __init__(self, requester: "_Requester", topic: Topic, offset: int, id_: str) -> None:
        self.requester = requester
        self.topic = topic
        self.offset = offset
        self.id = id_
        self.reply: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether the request no longer waits."""
        return self.requester.waiting.get(self.id) is not self


class _Requester:
    """The waiting requests of a connection by id, and those whose reply is stored but waits for room."""

    __slots__ = ("held", "session", "token", "waiting")

    def __init__(self, session: Session, token: str) -> None:
        self.session = session
        self.token = token
        self.waiting: dict[str, _Waiting] = {}
        self.held: deque[_Waiting] = deque()


class Requesting:
    """Accepts requests, and sends each reply to the connection that waits for it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._by_session: dict[int, _Requester] = {}
        self._by_token: dict[str, _Requester] = {}
        # Replies that were accepted and are not in the log yet, in the order of their offsets
        self._answers: deque[_Waiting] = deque()
        # (due ms, tie breaker, request): also requests that no longer wait, see `_OVER_MIN`
        self._deadlines: list[tuple[int, int, _Waiting]] = []
        self._ties = count()
        self._waiting = 0
        self.handlers: Handlers = {Request: self.request}

    def request(self, session: Session, command: Request, now_ms: int) -> None:
        """Accept an event whose reply the connection waits for."""
        desk, name, event = self._desk, command.topic, command.event
        desk.topics.check_writer(session, name)
        requester = self._by_session.get(session.number) or self._new_requester(session)
        if event.id in requester.waiting:
            raise Refusal(
                "bad_event",
                f"a request with the id {event.id} already waits on this connection; give each request its own id",
            )
        if len(requester.waiting) >= WAITING_MAX:
            raise Refusal("too_many", f"{WAITING_MAX} requests of this connection wait for their replies")
        # The responders need the topic, even if they may not make one.
        desk.topics.make(REPLIES)
        topic = desk.topics.find_or_make(name)
        event.headers = {**(event.headers or {}), REPLY_TO: requester.token}
        accepted = next(topic.accept([event], now_ms, is_timed=isinstance(event, TimedEvent)))
        if isinstance(accepted, Refusal):
            raise accepted
        waiting = requester.waiting[event.id] = _Waiting(requester, topic, accepted.first, event.id)
        self._waiting += 1
        desk.counts["requests"] += 1
        self._add_deadline(now_ms + command.timeout_ms, waiting)
        desk.work.topics.add(topic)
        desk.reply_when_stored(session, name, accepted.first, f"+OK request {name} {accepted.first}", accepted.size)

    def note_accepted(self, events: Sequence[IncomingEvent]) -> None:
        """Note which events published to `REPLIES` are replies to waiting requests. The first reply to each counts."""
        if not self._waiting:
            return
        for event in events:
            if event.offset is UNSET or event.key is UNSET or event.parent is UNSET:
                continue
            requester = self._by_token.get(event.key)
            waiting = None if requester is None else requester.waiting.get(event.parent)
            if waiting is not None and waiting.reply is None:
                waiting.reply = event.offset
                self._answers.append(waiting)

    def note_stored(self, topic: Topic, batch: Batch) -> None:
        """Send the replies of a batch that the log has now, if the topic is `REPLIES`."""
        if topic.name != REPLIES:
            return
        answers = self._answers
        while answers and (reply := answers[0].reply or 0) < batch.next:
            waiting = answers.popleft()
            if waiting.is_over:
                continue
            requester = waiting.requester
            if requester.session.outbox.has_room and not requester.held:
                self._send(waiting, batch.lines[reply - batch.first])
            else:
                requester.held.append(waiting)

    def note_unstored(self, topic: Topic) -> None:
        """Forget the requests and the replies that the log of a topic does not have."""
        for requester in self._by_session.values():
            lost = [one for one in requester.waiting.values() if one.topic is topic and one.offset >= topic.visible]
            for waiting in lost:
                self._end(waiting)
        if topic.name == REPLIES:
            for waiting in self._answers:
                waiting.reply = None
            self._answers.clear()

    def send_held(self, session: Session) -> None:
        """Send the stored replies to a connection, as far as it has room."""
        requester = self._by_session.get(session.number)
        if requester is None or not requester.held:
            return
        held = requester.held
        while held and session.outbox.has_room:
            waiting = held.popleft()
            line = self._line(waiting)
            if line is None:
                self._give_up(waiting)
            else:
                self._send(waiting, line)

    def tick(self, now_ms: int) -> None:
        """End the wait of requests whose time is over."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_ms:
            _, _, waiting = heapq.heappop(deadlines)
            if waiting.is_over:
                continue
            if waiting.reply is not None:
                # The reply is being written, or waits for room.
                self._add_deadline(now_ms + _AGAIN_MS, waiting)
            else:
                self._give_up(waiting)

    def forget_session(self, session: Session) -> None:
        """Forget the requests of a connection that has ended."""
        requester = self._by_session.pop(session.number, None)
        if requester is not None:
            self._waiting -= len(requester.waiting)
            requester.waiting = {}
            del self._by_token[requester.token]

    def _new_requester(self, session: Session) -> _Requester:
        requester = _Requester(session, secrets.token_urlsafe(_TOKEN_BYTES))
        self._by_session[session.number] = self._by_token[requester.token] = requester
        return requester

    def _line(self, waiting: _Waiting) -> bytes | None:
        """Return the line of a reply that was held, or None if it is no longer in memory."""
        topic, reply = self._desk.topics.by_name.get(REPLIES), waiting.reply
        if topic is None or reply is None or reply >= topic.visible:
            return None
        lines = topic.recent.lines([reply])
        # The topic may have been dropped and made again.
        return lines[0] if lines is not None and waiting.requester.token.encode() in lines[0] else None

    def _send(self, waiting: _Waiting, line: bytes) -> None:
        self._end(waiting)
        self._desk.counts["replied"] += 1
        self._desk.notify(waiting.requester.session, reply_line(waiting.topic.name, waiting.offset, line))

    def _give_up(self, waiting: _Waiting) -> None:
        self._end(waiting)
        self._desk.counts["unreplied"] += 1
        self._desk.notify(waiting.requester.session, timeout_line(waiting.topic.name, waiting.offset, waiting.id))

    def _end(self, waiting: _Waiting) -> None:
        del waiting.requester.waiting[waiting.id]
        self._waiting -= 1

    def _add_deadline(self, due_ms: int, waiting: _Waiting) -> None:
        if len(self._deadlines) > 2 * self._waiting + _OVER_MIN:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].is_over]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, (due_ms, next(self._ties), waiting))
