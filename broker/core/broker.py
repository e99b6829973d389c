"""The broker: topics, sessions, and what happens to a batch.

One event's path: `execute` has a published event accepted into its topic's pending batch; whoever writes the batch calls
`committed`, which makes it visible, confirms it to the publishers and delivers it; an `ack` settles it and makes room
for the next.
"""

from contextlib import suppress
from typing import Final, Protocol

from broker.core.access import EVERYTHING, Access
from broker.core.chains import Chains
from broker.core.consumer import Consumer
from broker.core.dead_letters import DEAD_LETTERS, REJECTED_LINES, rejected_line
from broker.core.delivery import Delivery
from broker.core.execution import Execution
from broker.core.handshakes import Handshakes
from broker.core.outbox import refusal_line
from broker.core.recent import Memory
from broker.core.retention import Forgetting, forget, retention_records
from broker.core.session import Session
from broker.core.topic import Topic
from broker.core.work import Fetch, Lookup, Reading, Work
from broker.errors import Refusal
from broker.events import IncomingEvent
from broker.log import Batch, TopicLog
from broker.protocol import Command
from broker.protocol.commands import Publish
from broker.protocol.retention import Retention
from broker.state import ClientRecord, ProducersRecord, Record

__all__ = ["Broker"]

REJECTED_PER_SECOND: Final = 100
TOPICS_MAX: Final = 5000
TRIM_EVERY_MS: Final = 1000
KEPT_CODES: Final = frozenset({"bad_json", "bad_event", "schema"})


class Logs(Protocol):
    """Where a topic's log comes from."""

    def open(self, topic: str) -> TopicLog:
        """Open the topic's log, made where it is missing. Raises OSError."""
        ...


class Broker:
    """All topics and sessions. Every method leaves what is to be done in `work`; times are in milliseconds."""

    def __init__(self, logs: Logs, *, version: str, promise: str, recent_bytes: int = 128 << 20) -> None:
        self.version = version
        self.topics: dict[str, Topic] = {}
        self.sessions: dict[int, Session] = {}
        self.attached: dict[str, list[tuple[str, str, int]]] = {}
        self.is_draining = False
        # Topics that one session alone may publish to.
        self.owners: dict[str, Session] = {}
        self.work = Work()
        self.counts: dict[str, int] = dict.fromkeys(
            (
                *("commands", "refused", "rejected_lines", "delivered", "acked", "damaged"),
                *("failed_nack", "failed_timeout", "failed_disconnect"),
            ),
            0,
        )
        self.delivery = Delivery(self.topics, self.work, self.counts)
        self.chains = Chains()
        self.handshakes = Handshakes(self)
        self._execution = Execution(self)
        self._logs = logs
        self._promise = promise
        self._memory = Memory(recent_bytes)
        self._visible: dict[str, int] = {}
        self._awaiting: dict[str, set[Session]] = {}
        self._awaiting_records: set[Session] = set()
        self._connections = 0
        self._records_synced = 0
        self._rejected_second, self._rejected_count = 0, 0
        self._trimmed_ms = 0

    # Connections

    def connect(self, peer: str, access: Access = EVERYTHING) -> Session:
        """Greet a new connection, which may do what `access` says until it has said who it is."""
        self._connections += 1
        session = Session(self._connections, peer, access)
        self.sessions[session.number] = session
        self.reply(session, f"+OK tweetwire broker {self.version}, type help")
        return session

    def disconnect(self, session: Session, now_ms: int) -> None:
        """Give back what the connection had in flight, and end what ends with it."""
        del self.sessions[session.number]
        for waiting in (*self._awaiting.values(), self._awaiting_records):
            waiting.discard(session)
        for consumer in list(session.consumers.values()):
            self.delivery.detach(consumer, now_ms, is_failure=not self.is_draining)

    def execute(self, session: Session, command: Command, now_ms: int) -> None:
        """Carry out one command; whatever it comes to, the session has exactly one reply more to get."""
        self.counts["commands"] += 1
        try:
            if session.access is not EVERYTHING:
                session.access.check(command)
            self._execution.carry_out(session, command, now_ms)
        except Refusal as refusal:
            # A run of publishes stands for as many commands, and each has its reply.
            for _ in range(len(command.events) if isinstance(command, Publish) else 1):
                self.refuse(session, refusal, now_ms)

    def refuse(self, session: Session, refusal: Refusal, now_ms: int) -> None:
        """Answer with a refusal; a line that was to be an event is kept in a topic of its own."""
        self.counts["refused"] += 1
        session.outbox.reply(refusal_line(refusal))
        self.work.sessions.add(session)
        if refusal.line and refusal.code in KEPT_CODES:
            self.keep_rejected(session.name, refusal, now_ms)

    def sent(self, session: Session, now_ms: int) -> None:
        """What `Session.take_output` gave has left: timers begin, and there may be room for more events."""
        for consumer in session.consumers.values():
            self.delivery.sent(consumer, now_ms)
            if session.outbox.was_full:
                self.delivery.pump(consumer.subscription, now_ms)

    def tick(self, now_ms: int) -> None:
        """Let what is due happen; to be called a few times a second."""
        self.delivery.tick(now_ms)
        if now_ms - self._trimmed_ms >= TRIM_EVERY_MS:
            self._trimmed_ms = now_ms
            for topic in self.topics.values():
                topic.trim_lanes()

    # Topics

    def topic(self, name: str) -> Topic:
        """Return a topic, made where it is missing. Raises Refusal ``disk``."""
        topic = self.topics.get(name)
        if topic is None:
            if len(self.topics) >= TOPICS_MAX:
                raise Refusal("too_many", f"there are {TOPICS_MAX} topics")
            try:
                topic = Topic(name, self._logs.open(name), self._memory)
            except OSError as error:
                raise Refusal("disk", f"cannot make topic {name}: {error.strerror}") from error
            self.topics[name] = topic
            self._visible[name] = topic.visible
            self._awaiting[name] = set()
            self.work.topics.add(topic)
        return topic

    def publish(self, session: Session, name: str, events: list[IncomingEvent], now_ms: int) -> None:
        """Accept a session's events, which confirms them when their batches are stored. Raises Refusal."""
        owner = self.owners.get(name, session)
        if owner is not session:
            raise Refusal("forbidden", f"{name} is written by {owner.name} alone")
        topic = self.topics.get(name) or self.topic(name)
        for accepted in topic.accept(events, now_ms):
            if isinstance(accepted, Refusal):
                self.refuse(session, accepted, now_ms)
            elif accepted.is_duplicate:
                session.outbox.expect_duplicate(name, accepted.first)
            else:
                session.outbox.expect(name, accepted.first, accepted.last)
                self.work.topics.add(topic)
        self._awaiting[name].add(session)
        self._release(session)

    def committed(self, topic: Topic, batch: Batch, now_ms: int) -> None:
        """A batch is in the log: confirm it and deliver it."""
        topic.commit(batch)
        self._visible[topic.name] = topic.visible
        self.handshakes.written(topic)
        self._confirm(topic)
        if topic.name == DEAD_LETTERS:
            self.delivery.letters_stored(topic.visible)
        for subscription in topic.subscriptions.values():
            self.delivery.pump(subscription, now_ms)

    def not_committed(self, topic: Topic, reason: str, now_ms: int) -> None:
        """A batch could not be written: refuse it and all that was accepted behind it."""
        topic.fall_back()
        self.handshakes.not_written(topic)
        for session in self._awaiting[topic.name]:
            session.outbox.fail(topic.name, topic.visible, Refusal("disk", reason))
        self._confirm(topic)
        if topic.name == DEAD_LETTERS:
            self.delivery.letters_lost(now_ms)

    def fetched(self, fetch: Fetch, found: list[tuple[int, bytes]], now_ms: int) -> None:
        """Lines that had to be read from the log are here."""
        self.delivery.fetched(fetch, found, now_ms)

    def has_read(self, reading: Reading, lines: list[bytes], after: int, damaged: int) -> None:
        """The lines of a ``read`` are here, and the offset behind them; so many were damaged and left out."""
        self.counts["damaged"] += damaged
        head = f"+OK read {reading.topic.name} {len(lines)} next={after}\n".encode()
        reading.answer.lines = head + b"".join(lines)
        self._release(reading.session)

    def forget_old(self, now_ms: int) -> dict[Topic, Forgetting]:
        """Pass over what is to go by its topic's retention; the caller keeps the state and then has the logs remove it."""
        kept_for_ever = Retention()
        with_limits = [topic for topic in self.topics.values() if topic.retention != kept_for_ever]
        decided = ((topic, forget(topic, now_ms)) for topic in with_limits)
        return {topic: forgetting for topic, forgetting in decided if forgetting is not None}

    def skip_to(self, topic: Topic, offset: int) -> None:
        """Have a topic go on at `offset`. Raises OSError."""
        topic.skip_to(offset)
        self._visible[topic.name] = topic.visible

    def has_looked_up(self, lookup: Lookup, reply: bytes) -> None:
        """A reply that had to be looked for is here."""
        lookup.answer.lines = reply
        self._release(lookup.session)

    # State

    def records(self) -> list[Record]:
        """Return everything that the state must keep as of now."""
        kept: list[Record] = [ClientRecord(name, attached) for name, attached in self.attached.items()]
        for topic in self.topics.values():
            table = {
                name: (producer.offset, producer.sequence, producer.checkpoint)
                for name, producer in topic.producers.stored.items()
            }
            kept.append(ProducersRecord(topic.name, topic.visible, table))
            kept += topic.documentation.records(topic.name)
            kept += retention_records(topic)
            kept += [sub.record(topic.visible) for sub in topic.subscriptions.values() if sub.is_durable]
        kept += self.handshakes.records()
        return kept

    @property
    def synced_records(self) -> int:
        """How many of the records that were kept are on the disk."""
        return self._records_synced

    def records_synced(self, number: int) -> None:
        """Records up to `number` are on the disk: answer those who waited for it."""
        self._records_synced = number
        for session in self._awaiting_records:
            self._release(session)
        self._awaiting_records = {session for session in self._awaiting_records if session.outbox.is_waiting}

    # Replies

    def reply(self, session: Session, line: str) -> None:
        """Add a reply of one line."""
        session.outbox.reply(f"{line}\n".encode())
        self.work.sessions.add(session)

    def reply_when_kept(self, session: Session, record: Record, line: str) -> None:
        """Keep a record and reply when the disk has it."""
        self.reply_behind(session, self.work.keep(record), line)

    def reply_behind(self, session: Session, number: int, line: str) -> None:
        """Reply when the disk has record `number`, which may be so already."""
        session.outbox.expect_record(number, f"{line}\n".encode())
        if number > self._records_synced:
            self._awaiting_records.add(session)
            self.work.must_sync_records = True
        else:
            self._release(session)

    def reply_when_stored(self, session: Session, topic: str, offset: int, line: str) -> None:
        """Reply with a line and the promise when the log has the event at `offset`."""
        session.outbox.expect_stored(topic, offset, f"{line} {self._promise}\n".encode())
        self._awaiting[topic].add(session)
        self._release(session)

    def find_in_flight(self, consumer: Consumer, ref: int | str) -> int | None:
        """Return the offset that `ref` means among what a consumer has in flight, None for none; ids are learnt once."""
        if isinstance(ref, str) and not consumer.knows_ids:
            found = self.topics[consumer.subscription.topic].read_lines(list(consumer.in_flight))
            consumer.note_ids([offset for offset, _ in found], [line for _, line in found])
        return consumer.find(ref)

    def _confirm(self, topic: Topic) -> None:
        awaiting = self._awaiting[topic.name]
        for session in list(awaiting):
            self._release(session)
            if not session.outbox.is_waiting:
                awaiting.discard(session)

    def _release(self, session: Session) -> None:
        session.outbox.confirm(self._visible, self._records_synced, self._promise)
        self.work.sessions.add(session)

    def keep_rejected(self, client: str, refusal: Refusal, now_ms: int) -> None:
        """Store a refused line, at most `REJECTED_PER_SECOND` of them; the others are counted."""
        self.counts["rejected_lines"] += 1
        if self._rejected_second != now_ms // 1000:
            self._rejected_second, self._rejected_count = now_ms // 1000, 0
        self._rejected_count += 1
        if self._rejected_count > REJECTED_PER_SECOND or self.is_draining:
            return
        with suppress(Refusal):
            topic = self.topic(REJECTED_LINES)
            event = rejected_line(refusal.line, refusal, client, self.counts["rejected_lines"])
            for _ in topic.accept([event], now_ms):
                self.work.topics.add(topic)
