"""The tools of command handlers: replies, topics, records, and jobs for long commands.

Always true: a reply that confirms data leaves after the data is on the disk, and replies leave in the order of their commands.
A handler leaves exactly one reply, or raises Refusal.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from broker.core.dates import Dates
from broker.core.mark_waits import MarkWait, MarkWaits
from broker.core.outbox import refusal_line
from broker.core.places import Answer
from broker.core.rejected_lines import RejectedLines
from broker.core.session import Session
from broker.core.steps import Outcome, Steps
from broker.core.topic.topic import Topic
from broker.core.topics import Topics
from broker.core.work import Drop, Job, Reading, Work
from broker.journal.records import DroppedRecord, Record
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.greeting import greeting_line

__all__ = ["Desk"]

_KEPT_CODES: Final = frozenset({"bad_json", "bad_event", "schema"})
"""The codes of refusals after which the broker keeps the refused line."""


class Desk:
    """Shared by all handlers. Times are in milliseconds."""

    def __init__(self, topics: Topics, work: Work, counts: dict[str, int], dates: Dates, promise: str) -> None:
        self.topics = topics
        self.work = work
        self.counts = counts
        # Set once the data folder is open
        self.identity = ""
        self.dates = dates
        self.rejected_lines = RejectedLines(topics, work, counts)
        self.waits = MarkWaits(counts)
        # How often the broker has ticked, and how many of the records given to the journal are on the disk
        self.ticks = 0
        self.records_synced = 0
        self._promise = promise
        # Sessions with replies that wait for the log of a topic, and for records
        self._awaiting: defaultdict[str, set[Session]] = defaultdict(set)
        self._awaiting_records: set[Session] = set()
        # Drops whose record is not on the disk yet, each with the record's number
        self._drops: list[tuple[int, Drop]] = []

    # Replies

    def reply(self, session: Session, line: str) -> None:
        """Add a reply of one line."""
        session.outbox.reply(f"{line}\n".encode())
        self.work.sessions.add(session)

    def greet(self, session: Session, version: str) -> None:
        """Greet a new connection."""
        self.reply(session, greeting_line(version, self.identity))

    def notify(self, session: Session, line: bytes) -> None:
        """Send a notice, which answers no command."""
        session.outbox.notice(line)
        self.work.sessions.add(session)

    def refuse(self, session: Session, refusal: Refusal, now_ms: int) -> None:
        """Answer with a refusal, and keep the refused line of a publish.

        No line is kept before a login, since anyone who reaches the port could fill the disk.
        """
        self._count_refusal(refusal)
        session.outbox.reply(refusal_line(refusal))
        self.work.sessions.add(session)
        if refusal.topic or refusal.code == "too_long":
            session.note_gaps().refuse_line(refusal)
        if refusal.line and refusal.code in _KEPT_CODES and session.access.user is not None:
            self.rejected_lines.keep(session.name, refusal, now_ms)

    def reply_when_kept(self, session: Session, record: Record, line: str) -> None:
        """Keep a record, and reply when it is on the disk."""
        self.reply_after_record(session, self.work.keep(record), line)

    def reply_after_record(self, session: Session, number: int, line: str) -> None:
        """Reply when the disk has record `number`, which may already be there."""
        session.outbox.expect_record(number, f"{line}\n".encode())
        if number > self.records_synced:
            self._awaiting_records.add(session)
            self.work.must_sync_records = True
        else:
            self.release(session)

    def reply_when_settled(self, session: Session, topic: Topic, record: Record | None, line: str) -> None:
        """Keep a record, and reply when it is on the disk and the topic has stored or refused all accepted events."""
        number = 0 if record is None else self.work.keep(record)
        if topic.next == topic.visible:
            self.reply_after_record(session, number, line)
            return
        session.outbox.expect_record_and_stored(number, topic.name, topic.next - 1, f"{line}\n".encode())
        if number > self.records_synced:
            self._awaiting_records.add(session)
            self.work.must_sync_records = True
        self.release_when_stored(session, topic.name)

    def reply_when_stored(self, session: Session, topic: str, offset: int, line: str, size: int = 0) -> None:
        """Reply with a line and the durability when the log of a topic has the event at `offset`, of `size` bytes."""
        session.outbox.expect_stored(topic, offset, f"{line} {self._promise}\n".encode(), size)
        self.release_when_stored(session, topic)

    def reply_when_confirmed(self, session: Session, topic: str, offset: int, line: str, now_ms: int) -> None:
        """Reply with a line and the promise when the event at `offset` of a topic is stored, and marks have passed it."""
        found = self.topics.by_name.get(topic)
        wait = None if found is None else self.waits.find(found, None)
        if found is None or wait is None:
            self.reply_when_stored(session, topic, offset, line)
            return
        wait = self.waits.find_again(wait, offset, found)
        wait.expect(offset + 1, now_ms)
        session.outbox.expect_stored(topic, offset, line.encode(), wait=wait)
        self.release_when_stored(session, topic)

    # Jobs and readings: each gets its place in the order of replies now, and its reply later.

    def begin_job(
        self, session: Session, steps: Steps[Outcome], size: int = 0, *, is_awaited: bool = True, outlives: bool = False
    ) -> None:
        """Begin a job whose reply has about `size` bytes, see `broker.core.steps`."""
        session.jobs += is_awaited
        self.work.tasks.append(Job(session, steps, session.outbox.expect_answer(size), is_awaited, outlives))

    def begin_reading(self, session: Session, topic: Topic, first: int, count: int, bytes_max: int) -> None:
        """Reply with up to `count` lines of about `bytes_max` bytes in total, read from offset `first` on."""
        answer = session.outbox.expect_answer(min(bytes_max, topic.log.size))
        self.work.tasks.append(Reading(session, topic, first, count, bytes_max, answer))

    def begin_drop(self, session: Session, topic: Topic) -> None:
        """Begin to delete a topic's log. The reply leaves when a record of this is on the disk."""
        self.topics.begin_drop(topic)
        session.jobs += 1
        self.work.tasks.append(Drop(session, topic, session.outbox.expect_answer()))

    def forget_topic(self, drop: Drop) -> None:
        """Forget a topic whose log and subscriptions were deleted, and reply when a record of this is on the disk."""
        topic = drop.topic
        self._release_parked(self.waits.give_up(topic))
        # No event of the topic is being written, so the fate of all its unconfirmed events is known.
        for session in self._awaiting.pop(topic.name, ()):
            session.outbox.settle_topic(topic.name, self._promise)
            self.release(session)
        self.topics.remove(topic)
        self._drops.append((self.work.keep(DroppedRecord(topic.name)), drop))
        self.work.must_sync_records = True

    def finish(self, place: Drop | Job | Reading, reply: bytes) -> None:
        """Fill the place of a reply that was made later. An empty `reply` means that a command still has to run."""
        if not isinstance(place, Reading):
            place.session.jobs -= place.is_awaited
        elif place.when_done is not None:
            place.when_done()
        place.answer.lines = reply
        self.release(place.session)

    def refuse_place(self, place: Drop | Job | Reading, refusal: Refusal) -> None:
        """Fill the place of a reply with a refusal. A topic whose drop is refused stays unchanged."""
        if isinstance(place, Drop):
            self.topics.end_drop(place.topic.name)
        self._count_refusal(refusal)
        self.finish(place, refusal_line(refusal))

    def refuse_answer(self, session: Session, answer: Answer, refusal: Refusal) -> None:
        """Fill the place of a reply with a refusal, if no task works on the reply."""
        self._count_refusal(refusal)
        answer.lines = refusal_line(refusal)
        self.release(session)

    # Replies that wait

    def release_when_stored(self, session: Session, topic: str) -> None:
        """Send a session's replies, and later those that wait for a topic's log, as soon as it has their events."""
        self._awaiting[topic].add(session)
        self.release(session)

    def release(self, session: Session) -> None:
        """Send those replies of a session that no longer wait for anything."""
        session.outbox.confirm(self.topics.visible, self.records_synced, self._promise)
        if session.outbox.marked:
            self._park(session)
        self.work.sessions.add(session)

    def release_marked(self, topic: Topic) -> None:
        """Release the replies that waited for the marks of a topic, which have changed."""
        self._release_parked(self.waits.note_marks(topic))

    def note_tick(self, now_ms: int) -> None:
        """Note that time has passed: release the replies that have waited for marks long enough."""
        self.ticks += 1
        self._release_parked(self.waits.note_time(now_ms))
        self.waits.forget_idle()

    def close(self) -> None:
        """Prepare for the shutdown: keep no more refused lines, and wait for no more marks."""
        self.rejected_lines.is_closed = True
        self._release_parked(self.waits.close())

    def confirm_stored(self, topic: Topic) -> None:
        """Release the replies that wait for events which are now in the topic's log."""
        self.topics.visible[topic.name] = topic.visible
        self._release_awaiting(topic)

    def refuse_unstored(self, topic: Topic, refusal: Refusal) -> None:
        """Refuse the events of a topic that its log does not have."""
        self.waits.fall_back(topic)
        for session in self._awaiting[topic.name]:
            session.outbox.fail(topic.name, topic.visible, refusal)
        self._release_awaiting(topic)

    def note_synced(self, number: int) -> None:
        """Release the replies that wait for records up to `number`."""
        self.records_synced = number
        for session in self._awaiting_records:
            self.release(session)
        self._awaiting_records = {session for session in self._awaiting_records if session.outbox.is_waiting}
        while self._drops and self._drops[0][0] <= number:
            _, drop = self._drops.pop(0)
            self.topics.end_drop(drop.topic.name)
            self.finish(drop, f"+OK drop {drop.topic.name}\n".encode())

    def forget_session(self, session: Session) -> None:
        """Forget the waiting replies of a session that has ended."""
        for waiting in (*self._awaiting.values(), self._awaiting_records):
            waiting.discard(session)

    def _release_awaiting(self, topic: Topic) -> None:
        awaiting = self._awaiting[topic.name]
        for session in list(awaiting):
            self.release(session)
            # A parked session waits for marks, not for this commit. It stays only if some of its replies wait
            # only for a log.
            if not session.outbox.is_waiting or (session.parked is not None and not session.outbox.plain):
                awaiting.discard(session)

    def _park(self, session: Session) -> None:
        """Keep a session until the marks have passed the event that its next reply confirms."""
        head = session.outbox.marked_head()
        if head is None or session.parked is not None:
            return
        topic, first, wait = head
        if first < self.topics.visible.get(topic, 0):
            wait.park(session, first)
        else:
            self._awaiting[topic].add(session)

    def _release_parked(self, waits: Iterable[MarkWait]) -> None:
        for wait in waits:
            for session in wait.unparked():
                self.release(session)

    def _count_refusal(self, refusal: Refusal) -> None:
        self.counts["refused"] += 1
        if refusal.code == "internal":
            self.work.bugs.append(refusal.__cause__ or refusal)
