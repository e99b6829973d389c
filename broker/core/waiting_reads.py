"""The reads that wait at the end of a log for its next event.

Always true:

- a read that waits has its place in the order of its connection's replies, and later replies wait for it;
- a connection has at most `SESSION_READS_MAX` waiting reads, and the broker `READS_MAX`;
- at most `AT_ONCE` reads that have waited are carried out at once. So an event for which many reads wait does not delay
  other commands.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, TypeVar

from broker.core.desk import Desk
from broker.core.places import Answer
from broker.core.session import Session
from broker.core.topic.topic import Topic
from broker.core.work import Reading
from tweetwire.protocol.errors import Refusal

__all__ = ["WaitingReads"]

K = TypeVar("K")

SESSION_READS_MAX: Final = 16
READS_MAX: Final = 20_000
AT_ONCE: Final = 64
ENDED_A_TICK: Final = 1_000
STEP_MS: Final = 100
"""The precision of the waiting time. Reads whose time ends in the same step are kept together."""


@dataclass(slots=True, eq=False)
class _WaitingRead:
    session: Session
    topic: Topic
    first: int
    limit: int
    bytes_max: int
    step: int
    answer: Answer


class WaitingReads:
    """The waiting reads by topic, by session, and by the time at which they end. Times are in milliseconds."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        # The inner dictionaries are used as ordered sets.
        self._by_topic: dict[Topic, dict[_WaitingRead, None]] = {}
        self._by_session: dict[Session, dict[_WaitingRead, None]] = {}
        self._by_step: dict[int, dict[_WaitingRead, None]] = {}
        # Reads whose event has come, in the order in which they are carried out
        self._due: deque[_WaitingRead] = deque()
        self._running = self._waiting = 0
        self._is_closed = False

    def __len__(self) -> int:
        return self._waiting

    def add(self, session: Session, topic: Topic, limit: int, bytes_max: int, until_ms: int) -> None:
        """Let a read wait for the next event of a topic until `until_ms`.

        Raises Refusal ``too_many``, and ``shutting_down`` when the broker ends.
        """
        if self._is_closed:
            raise Refusal("shutting_down", "this broker is shutting down; read again when it has restarted")
        if len(self._by_session.get(session, ())) >= SESSION_READS_MAX:
            raise Refusal("too_many", f"{SESSION_READS_MAX} reads of this connection wait already")
        if self._waiting >= READS_MAX:
            raise Refusal("too_many", f"{READS_MAX} reads wait already; read without wait, or later")
        step = -(-until_ms // STEP_MS)
        read = _WaitingRead(session, topic, topic.visible, limit, bytes_max, step, session.outbox.expect_answer())
        self._by_topic.setdefault(topic, {})[read] = None
        self._by_session.setdefault(session, {})[read] = None
        self._by_step.setdefault(step, {})[read] = None
        self._waiting += 1

    def note_visible(self, topic: Topic) -> None:
        """Carry out the reads that wait for a topic, since it has a new event."""
        reads = self._by_topic.pop(topic, None)
        if reads:
            self._due.extend(reads)
            self._begin_due()

    def end_expired(self, now_ms: int) -> None:
        """Answer the reads whose time is over, without events."""
        steps = sorted(step for step in self._by_step if step * STEP_MS <= now_ms)
        ended = 0
        for step in steps:
            for read in list(self._by_step[step])[: ENDED_A_TICK - ended]:
                ended += 1
                if read in self._by_topic.get(read.topic, ()):
                    self._end(read)
            if ended == ENDED_A_TICK:
                return

    def forget_session(self, session: Session) -> None:
        """Forget the reads of a session that has ended."""
        for read in list(self._by_session.get(session, ())):
            self._remove(read)

    def forget_topic(self, topic: Topic) -> None:
        """Refuse the reads that wait for a topic that was dropped."""
        for read in list(self._by_topic.get(topic, ())):
            self._remove(read)
            self._refuse_dropped(read)

    def close(self) -> None:
        """Answer all reads without events, and let no other one wait, since the broker ends."""
        self._is_closed = True
        for reads in list(self._by_topic.values()):
            for read in list(reads):
                self._end(read)

    def _begin_due(self) -> None:
        while self._due and self._running < AT_ONCE:
            read = self._due.popleft()
            # Otherwise its session has ended.
            if self._remove(read):
                self._begin(read)

    def _begin(self, read: _WaitingRead) -> None:
        topic = read.topic
        if self._desk.topics.by_name.get(topic.name) is not topic:
            self._refuse_dropped(read)
            return
        self._running += 1
        read.session.outbox.enlarge(read.answer, min(read.bytes_max, topic.log.size))
        count = min(read.limit, topic.visible - read.first)
        reading = Reading(read.session, topic, read.first, count, read.bytes_max, read.answer, self._note_done)
        self._desk.work.tasks.append(reading)

    def _note_done(self) -> None:
        """Note that a reading which this object has begun is done, and begin the next one."""
        self._running -= 1
        self._begin_due()

    def _end(self, read: _WaitingRead) -> None:
        """Answer a read without events."""
        self._remove(read)
        read.answer.lines = f"+OK read {read.topic.name} 0 next={read.first}\n".encode()
        self._desk.release(read.session)

    def _refuse_dropped(self, read: _WaitingRead) -> None:
        self._desk.refuse_answer(read.session, read.answer, Refusal("unknown_topic", f"{read.topic.name} was dropped"))

    def _remove(self, read: _WaitingRead) -> bool:
        """Remove a read from all collections but `_due`. Return whether it was there."""
        if read not in self._by_session.get(read.session, ()):
            return False
        self._waiting -= 1
        _discard(self._by_topic, read.topic, read)
        _discard(self._by_session, read.session, read)
        _discard(self._by_step, read.step, read)
        return True


def _discard(groups: dict[K, dict[_WaitingRead, None]], key: K, read: _WaitingRead) -> None:
    """Remove a read from one of `groups`, and a group that is then empty."""
    group = groups.get(key)
    if group is not None:
        group.pop(read, None)
        if not group:
            del groups[key]
