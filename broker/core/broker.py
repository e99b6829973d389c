"""The broker: every decision about sessions and topics, without waiting. It leaves the I/O to do in `work`.

The path of an event: `execute` adds it to its topic's pending batch. The code that writes the batch calls `committed`, which
makes it visible, confirms it to its publisher and delivers it. An `ack` settles it, and makes room for the next one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from broker.core.access import EVERYTHING, Access
from broker.core.counts import COUNTED, PartCounts
from broker.core.dates import Dates
from broker.core.delivery.dead_letters import DEAD_LETTERS
from broker.core.delivery.delivery import Delivery
from broker.core.desk import Desk
from broker.core.restoration import Skipped, restore
from broker.core.session import Session
from broker.core.sessions import Sessions
from broker.core.state_records import state_records
from broker.core.steps import Outcome, Steps
from broker.core.topic.retention import Forgetting, forget_expired
from broker.core.topic.topic import Topic
from broker.core.topics import Logs, Topics
from broker.core.verbs.table import Verbs
from broker.core.work import Drop, Fetch, Job, Look, Reading, Work
from broker.journal.records import Record
from broker.log import Batch
from tweetwire.files import why
from tweetwire.protocol import Command
from tweetwire.protocol.errors import Refusal, internal
from tweetwire.protocol.verbs.exactly_once import Pub2
from tweetwire.protocol.verbs.publishing import Publish

__all__ = ["Broker"]

TRIM_EVERY_MS: Final = 1000


class Broker:
    """All topics and sessions. Times are in milliseconds, by the broker's clock."""

    def __init__(
        self, logs: Logs, *, version: str, promise: str, recent_bytes: int = 128 << 20, makes_unknown: bool = True
    ) -> None:
        self.version = version
        self.work = Work()
        self._counts = dict.fromkeys(COUNTED, 0)
        self._dates = Dates()
        self._topics = Topics(logs, self.work, self._dates, recent_bytes, makes_unknown=makes_unknown)
        self._sessions = Sessions(self.work)
        self._desk = Desk(self._topics, self.work, self._counts, self._dates, promise)
        self._delivery = Delivery(self._topics.by_name, self.work, self._counts, self._dates)
        self._verbs = Verbs(self._desk, self._delivery, self._sessions, self.records)
        self._handlers, self._reads = self._verbs.handlers, self._verbs.reading.waiting
        self._is_draining, self._trimmed_ms = False, 0

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by name."""
        return self._topics.by_name

    @property
    def sessions(self) -> Mapping[int, Session]:
        """The open sessions by number."""
        return self._sessions.by_number

    @property
    def counts(self) -> Mapping[str, int]:
        """The counters that ``stats`` reports."""
        return self._counts

    @property
    def commands(self) -> frozenset[type[Command]]:
        """The commands that have a handler."""
        return frozenset(self._handlers)

    @property
    def is_draining(self) -> bool:
        """Whether the broker is shutting down."""
        return self._is_draining

    @property
    def synced_records(self) -> int:
        """How many of the records given to the journal are on the disk."""
        return self._desk.records_synced

    def stats(self, access: Access, now_ms: int) -> Steps[bytes]:
        """Return the reply to ``stats`` for a user, in steps."""
        return self._verbs.reporting.figures.stats(access, now_ms)

    # Sessions

    def connect(self, peer: str, access: Access = EVERYTHING, name: str | None = None) -> Session:
        """Greet a new connection, which has `access` until it logs in."""
        session = self._sessions.add(peer, access, name)
        self._desk.greet(session, self.version)
        return session

    def disconnect(self, session: Session, now_ms: int) -> None:
        """Return the events that a connection had in flight, and end its anonymous subscriptions."""
        self._sessions.remove(session)
        self._reads.forget_session(session)
        self._desk.forget_session(session)
        self._verbs.requesting.forget_session(session)
        self._verbs.claiming.forget_session(session)
        self._verbs.subscribing.leave_all(session, now_ms, is_failure=not self._is_draining)

    def grant(self, session: Session, access: Access, now_ms: int) -> None:
        """Replace a session's permissions, and detach it from the subscriptions that it may no longer use."""
        self._verbs.subscribing.grant(session, access, now_ms)

    def shares(self, publish: Publish) -> Sequence[Publish]:
        """Split a run of publishes into parts that are short to execute, since a schema takes time to check."""
        return self._verbs.publishing.shares(publish)

    def execute(self, session: Session, command: Command, now_ms: int) -> None:
        """Execute one command. It has exactly one reply; a run of publishes has one for each event."""
        self._counts["commands"] += 1
        replies = session.outbox.replies
        try:
            handler = self._handlers.get(type(command))
            if handler is None:
                raise Refusal("forbidden", f"no permission is declared for {type(command).__name__}")
            if session.access is not EVERYTHING:
                session.access.check(command.permission, command)
            handler(session, command, now_ms)
        # Keep no name for the error after these blocks: its traceback refers to this frame, so that would be a reference cycle.
        except Refusal as refusal:
            self._refuse_owed(session, command, session.outbox.replies - replies, refusal, now_ms)
        except OSError as error:
            self._refuse_owed(session, command, session.outbox.replies - replies, Refusal("disk", why(error)), now_ms)
        except Exception as error:  # noqa: BLE001 — a bug in one command must not end the connection and its other commands
            self._refuse_owed(session, command, session.outbox.replies - replies, internal(error), now_ms)

    def refuse(self, session: Session, refusal: Refusal, now_ms: int) -> None:
        """Refuse a line that is not a command."""
        self._desk.refuse(session, refusal, now_ms)

    def sent(self, session: Session, now_ms: int) -> None:
        """Start the timeouts of the events that `Session.take_output` returned and that were sent, and deliver further ones."""
        was_full = session.outbox.was_full
        self._delivery.note_session_sent(session, now_ms)
        if was_full:
            self._verbs.requesting.send_held(session)

    def _refuse_owed(self, session: Session, command: Command, replied: int, refusal: Refusal, now_ms: int) -> None:
        """Refuse a command that already has `replied` replies."""
        # Each publish of a run has its own reply.
        owed = (len(command.events) if isinstance(command, Publish) else 1) - replied
        if isinstance(command, Publish) and owed:
            session.note_gaps().refuse_events(command.topic, command.events[-owed:])
        elif isinstance(command, Pub2):
            session.note_gaps().refuse_events(command.topic, [command.event])
        for _ in range(owed):
            self._desk.refuse(session, refusal, now_ms)

    # Results of the work

    def committed(self, topic: Topic, batch: Batch, now_ms: int) -> None:
        """Confirm and deliver the events of a batch that is in the log."""
        topic.make_visible(batch)
        self._verbs.note_stored(topic, batch)
        if topic.name == DEAD_LETTERS:
            self._delivery.deaths.note_stored_letters(topic.visible)
        for subscription in topic.subscriptions.values():
            self._delivery.pump(subscription, now_ms)

    def not_committed(self, topic: Topic, reason: str, now_ms: int) -> None:
        """Refuse a batch that could not be written, and all events that were accepted after it."""
        topic.fall_back()
        self._verbs.note_unstored(topic, Refusal("disk", reason))
        if topic.name == DEAD_LETTERS:
            self._delivery.deaths.note_lost_letters(now_ms)

    def note_records_synced(self, number: int) -> None:
        """Send the replies that waited for records up to `number`, which are on the disk."""
        self._desk.note_synced(number)

    def fetched(self, fetch: Fetch | Look, found: list[tuple[int, bytes]], now_ms: int) -> None:
        """Deliver lines that were read from the log."""
        self._delivery.note_fetched(fetch, found, now_ms)

    def has_read(self, reading: Reading, lines: list[bytes], after: int, damaged: int) -> None:
        """Reply to a ``read`` with its lines and the offset after them; `damaged` ones were left out."""
        self._counts["damaged"] += damaged if self._topics.stays(reading.topic) else 0
        head = f"+OK read {reading.topic.name} {len(lines)} next={after}\n".encode()
        self._desk.finish(reading, head + b"".join(lines))

    def has_done(self, job: Job, outcome: Outcome, now_ms: int) -> None:
        """Send the reply of a job, or execute the command for which it has found the references."""
        if not callable(outcome):
            self._desk.finish(job, outcome)
            return
        self._desk.finish(job, b"")
        replies = job.session.outbox.replies
        try:
            outcome()
        except Exception as error:  # noqa: BLE001 — see `execute`
            if job.session.outbox.replies == replies:
                self._desk.refuse(job.session, error if isinstance(error, Refusal) else internal(error), now_ms)

    def has_dropped(self, drop: Drop) -> Steps[None]:
        """Forget a topic whose log was deleted, in steps. The reply leaves when a record of this is on the disk."""
        return self._verbs.topics.finish_drop(drop)

    def has_failed(self, place: Drop | Job | Reading, refusal: Refusal) -> None:
        """Refuse a drop, a job or a reading. The refusal takes the place of its reply."""
        self._desk.refuse_place(place, refusal)

    # Time

    def tick(self, now_ms: int) -> None:
        """Handle the timeouts and pauses that have ended. Call it a few times a second."""
        self._desk.note_tick(now_ms)
        self._delivery.tick(now_ms)
        self._verbs.requesting.tick(now_ms)
        self._reads.end_expired(now_ms)
        if now_ms - self._trimmed_ms >= TRIM_EVERY_MS:
            self._trimmed_ms = now_ms
            for topic in self._topics:
                topic.trim_lanes()

    def set_identity(self, identity: str) -> None:
        """Set the identity of the data folder, which ``stats`` and the greeting show."""
        self._desk.identity = identity

    def set_date_shift(self, shift_ms: int) -> None:
        """Date events `shift_ms` later than the broker's clock, since the system's clock is ahead by that much."""
        self._dates.shift_ms = shift_ms

    def begin_drain(self) -> None:
        """Prepare for the shutdown: keep no more refused lines, count no failed try when a connection ends, end all waits."""
        self._is_draining = True
        self._desk.close()
        self._reads.close()

    # For the server and for gateways

    def topic(self, name: str) -> Topic:
        """Return a topic, creating it if it is missing. Raises Refusal ``disk`` or ``too_many``."""
        return self._topics.make(name)

    def open_topic(self, name: str) -> Topic:
        """Return a topic, creating it if it is missing, even beyond the limit of topics. Raises OSError."""
        return self._topics.open(name)

    def reserve_topic(self, name: str, session: Session) -> None:
        """Let only one session publish to a topic, until `unreserve_topic`."""
        self._topics.reserve(name, session)

    def unreserve_topic(self, name: str) -> None:
        """Let other sessions publish to a topic again."""
        self._topics.unreserve(name)

    def protect_topics(self, prefix: str) -> None:
        """Refuse to drop topics whose name begins with `prefix`."""
        self._topics.protect(prefix)

    def counts_of(self, part: str, names: tuple[str, ...]) -> PartCounts:
        """Return counters for a part of the broker's process, which ``stats`` shows as ``<part>_<name>``."""
        return PartCounts(self._counts, part, names)

    def keep_checkpoint(self, topic: str, producer: str, value: str) -> None:
        """Move the checkpoint of a producer inside the broker's process. This is not refused when the disk is full."""
        self._verbs.publishing.keep_checkpoint(topic, producer, value)

    def keep_rejected(self, client: str, refusal: Refusal, now_ms: int) -> None:
        """Keep a refused line of a publish in the topic `rejected_lines`."""
        self._desk.rejected_lines.keep(client, refusal, now_ms)

    # State

    def set_full_disk(self, reason: str) -> None:
        """Refuse commands that keep a record, except acks and failed tries, for this reason; with "", accept them again."""
        self._topics.full_disk = reason

    def set_fence(self, reason: str) -> None:
        """Refuse publishes for this reason, since another broker has taken over. With "", accept them."""
        self._topics.fence = reason

    def forget_old(self, now_ms: int) -> dict[Topic, Forgetting]:
        """Skip the events that retention removes.

        The caller stores the state first, and then removes the events from the logs.
        """
        return {topic: found for topic in self._topics if (found := forget_expired(topic, now_ms)) is not None}

    def records(self) -> list[Record]:
        """Return records of the whole current state, for the journal."""
        return state_records(self._sessions, self._topics, self._verbs.exactly_once, self._verbs.patterns.table)

    def restore(self, records: Iterable[Record], now_ms: int) -> list[Skipped]:
        """Restore the state from `records` and the logs of the open topics. Return the offsets that the logs have lost.

        Dead letters that are written again have the date `now_ms`. Raises OSError if a log cannot be continued.
        """
        patterns, made = self._verbs.patterns, (self._delivery.deaths, self._verbs.exactly_once)
        skipped = restore(self._topics, self._sessions, *made, patterns.take_records(records), now_ms=now_ms)
        patterns.restore()
        return skipped
