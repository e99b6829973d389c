"""The broker: commands in, decisions out.

One event's path: `execute` gives a published event its offset in its topic's pending batch; whoever writes the batch calls
`committed`, which makes it visible, confirms it to the publishers and delivers it; an `ack` settles it and makes room
for the next.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import msgspec

from broker.core import reports
from broker.core.consumer import Consumer
from broker.core.outbox import refusal_line
from broker.core.session import Session
from broker.core.subscription import Subscription, Taken
from broker.core.topic import Topic
from broker.core.work import Fetch, Work
from broker.errors import Refusal
from broker.log import Batch, TopicLog
from broker.protocol import commands, help_texts
from broker.protocol.event_lines import redelivered
from broker.state import CheckpointRecord, ProducersRecord, Record, UnsubscribedRecord

__all__ = ["Broker"]

TAKE_MAX: Final = 1000
TAKE_BYTES: Final = 1 << 20


class Logs(Protocol):
    """Where a topic's log comes from."""

    def open(self, topic: str) -> TopicLog:
        """Open the topic's log, made where it is missing. Raises OSError."""
        ...


class Broker:
    """All topics and sessions. Every method leaves what is to be done in `work`."""

    def __init__(self, logs: Logs, *, version: str, promise: str, recent_bytes: int = 32 << 20) -> None:
        self.version = version
        self.promise = promise
        self.topics: dict[str, Topic] = {}
        self.sessions: dict[int, Session] = {}
        self.work = Work()
        self.counts: dict[str, int] = {"commands": 0, "refused": 0, "acked": 0, "delivered": 0, "damaged": 0}
        self._logs = logs
        self._recent_bytes = recent_bytes
        self._visible: dict[str, int] = {}
        self._awaiting: dict[str, set[Session]] = {}
        self._awaiting_records: set[Session] = set()
        self._connections = 0
        self._records_kept = 0
        self._records_synced = 0
        self._carry_out: dict[type[Any], Callable[[Session, Any, int], None]] = {
            commands.Publish: self._publish,
            commands.Ack: self._ack,
            commands.Hello: self._hello,
            commands.Subscribe: self._subscribe,
            commands.Unsubscribe: self._unsubscribe,
            commands.Read: self._read,
            commands.Last: self._last,
            commands.Checkpoint: self._checkpoint,
            commands.Topics: self._topics,
            commands.Stats: self._stats,
            commands.Help: self._help,
            commands.Ping: self._ping,
            commands.Quit: self._quit,
        }

    def take_work(self) -> Work:
        """Return what is to be done since the last call."""
        work, self.work = self.work, Work()
        return work

    # Connections

    def connect(self, peer: str) -> Session:
        """Greet a new connection."""
        self._connections += 1
        session = Session(self._connections, peer)
        self.sessions[session.number] = session
        self._reply(session, f"+OK tweetwire broker {self.version}, type help\n".encode())
        return session

    def disconnect(self, session: Session) -> None:
        """Give back what the connection had in flight, and end what ends with it."""
        del self.sessions[session.number]
        for waiting in (*self._awaiting.values(), self._awaiting_records):
            waiting.discard(session)
        for consumer in list(session.consumers.values()):
            self._detach(consumer)

    def execute(self, session: Session, command: commands.Command, now_ms: int) -> None:
        """Carry out one command; whatever it comes to, the session has exactly one reply more to get."""
        self.counts["commands"] += 1
        try:
            self._carry_out[type(command)](session, command, now_ms)
        except Refusal as refusal:
            self.refuse(session, refusal)

    def refuse(self, session: Session, refusal: Refusal) -> None:
        """Answer with a refusal."""
        self.counts["refused"] += 1
        self._reply(session, refusal_line(refusal))

    def drained(self, session: Session) -> None:
        """What was to be sent has left: there may be room for more events."""
        for consumer in session.consumers.values():
            self._pump(consumer.subscription)

    # Topics

    def topic(self, name: str) -> Topic:
        """Return a topic, made where it is missing. Raises Refusal ``disk``."""
        topic = self.topics.get(name)
        if topic is None:
            try:
                topic = Topic(name, self._logs.open(name), self._recent_bytes)
            except OSError as error:
                raise Refusal("disk", f"cannot make topic {name}: {error.strerror}") from error
            self.topics[name] = topic
            self._visible[name] = topic.visible
            self._awaiting[name] = set()
            self.work.topics.add(topic)
        return topic

    def committed(self, topic: Topic, batch: Batch) -> None:
        """A batch is in the log: confirm it and deliver it."""
        topic.commit(batch)
        self._visible[topic.name] = topic.visible
        self._confirm(topic)
        for subscription in topic.subscriptions.values():
            self._pump(subscription)
        topic.trim_lanes()

    def not_committed(self, topic: Topic, reason: str) -> None:
        """A batch could not be written: refuse it and all that was accepted behind it."""
        topic.fall_back()
        refusal = Refusal("disk", reason)
        for session in self._awaiting[topic.name]:
            session.outbox.fail(topic.name, topic.visible, refusal)
        self._confirm(topic)

    def fetched(self, fetch: Fetch, found: list[tuple[int, bytes]]) -> None:
        """Deliver lines that had to be read from the log; a damaged one counts as settled, since nobody can have it."""
        consumer = fetch.consumer
        consumer.fetching = False
        missing = set(fetch.offsets).difference(offset for offset, _ in found)
        still_here = [(offset, line) for offset, line in found if offset in consumer.in_flight]
        self._deliver(consumer, [offset for offset, _ in still_here], [line for _, line in still_here])
        damaged = [offset for offset in missing if offset in consumer.in_flight]
        self.counts["damaged"] += len(damaged)
        self._settle(consumer, damaged)
        self._pump(consumer.subscription)

    # State

    def records(self) -> list[Record]:
        """Return everything that the state must keep as of now."""
        kept: list[Record] = []
        for topic in self.topics.values():
            table = {
                name: (producer.offset, producer.sequence, producer.checkpoint)
                for name, producer in topic.producers.stored.items()
            }
            kept.append(ProducersRecord(topic.name, topic.visible, table))
            kept += [sub.record(topic.visible) for sub in topic.subscriptions.values() if sub.is_durable]
        return kept

    @property
    def records_kept(self) -> int:
        """The number of the last record that was left in `work`."""
        return self._records_kept

    def records_synced(self, number: int) -> None:
        """Records up to `number` are on the disk: answer those who waited for it."""
        self._records_synced = number
        for session in self._awaiting_records:
            self._release(session)
        self._awaiting_records = {session for session in self._awaiting_records if session.outbox.is_waiting}

    # Commands

    def _publish(self, session: Session, command: commands.Publish, now_ms: int) -> None:
        name = command.topic
        topic = self.topics.get(name) or self.topic(name)
        self.counts["commands"] += len(command.events) - 1
        for accepted in topic.accept(command.events, now_ms):
            if accepted.is_duplicate:
                session.outbox.expect_duplicate(name, accepted.first)
            else:
                session.outbox.expect(name, accepted.first, accepted.last)
                self.work.topics.add(topic)
        self._awaiting[name].add(session)
        self._release(session)

    def _ack(self, session: Session, command: commands.Ack, now_ms: int) -> None:
        consumers = session.consumers_of(command.topic)
        if not consumers:
            raise Refusal("not_subscribed", f"this connection has no subscription to {command.topic}")
        settled = 0
        for consumer, offsets in self._meant(consumers, command):
            settled += self._settle(consumer, offsets)
        if not settled:
            raise Refusal("stale", "nothing of that is in flight on this connection")
        if not session.is_quiet:
            self._reply(session, b"+OK ack %b %d\n" % (command.topic.encode(), settled))
        for consumer in consumers:
            self._pump(consumer.subscription)

    def _hello(self, session: Session, command: commands.Hello, now_ms: int) -> None:
        session.name, session.is_quiet = command.name, command.is_quiet
        self._reply(session, f"+OK hello {command.name}\n".encode())

    def _subscribe(self, session: Session, command: commands.Subscribe, now_ms: int) -> None:
        topic = self._existing(command.topic) if not command.may_create else self.topic(command.topic)
        name = command.name or f"conn-{session.number}"
        subscription = topic.subscriptions.get(name)
        if subscription is None:
            start = self._start(topic, command.policy.start)
            subscription = topic.subscribe(name, start, is_durable=command.name is not None)
            if subscription.is_durable:
                self._keep(subscription.record(topic.visible))
        consumer = session.consumers.get((topic.name, name))
        if consumer is None:
            consumer = Consumer(session, subscription, command.prefetch)
            session.consumers[topic.name, name] = consumer
            subscription.consumers.append(consumer)
        consumer.prefetch = command.prefetch
        reply = (
            f"+OK sub {topic.name} as={name} from={subscription.start}"
            f" pending={subscription.waiting} prefetch={consumer.prefetch}\n"
        )
        self._reply(session, reply.encode())
        self._pump(subscription)

    def _unsubscribe(self, session: Session, command: commands.Unsubscribe, now_ms: int) -> None:
        topic = self._existing(command.topic)
        mine = session.consumers_of(topic.name)
        name = command.name or (mine[0].subscription.name if mine else "")
        subscription = topic.subscriptions.get(name)
        if subscription is None:
            raise Refusal("not_subscribed", f"{topic.name} has no subscription {name}".rstrip())
        for consumer in subscription.consumers:
            del consumer.session.consumers[topic.name, name]
        subscription.consumers.clear()
        del topic.subscriptions[name]
        if subscription.is_durable:
            self._keep(UnsubscribedRecord(topic.name, name))
        self._reply(session, f"+OK unsub {topic.name}\n".encode())

    def _read(self, session: Session, command: commands.Read, now_ms: int) -> None:
        topic = self._existing(command.topic)
        start = min(self._start(topic, command.start), topic.visible)
        count = min(command.limit, topic.visible - start)
        lines, after, damaged = topic.log.read(start, count, command.bytes_max)
        self.counts["damaged"] += len(damaged)
        head = f"+OK read {topic.name} {len(lines)} next={after if count else start}\n".encode()
        self._reply(session, head + b"".join(lines))

    def _last(self, session: Session, command: commands.Last, now_ms: int) -> None:
        producer = self._existing(command.topic).producers.stored.get(command.producer)
        answer = msgspec.json.encode(producer).decode()
        self._reply(session, f"+OK last {command.topic} {command.producer} {answer}\n".encode())

    def _checkpoint(self, session: Session, command: commands.Checkpoint, now_ms: int) -> None:
        topic = self.topic(command.topic)
        offset = topic.producers.set_checkpoint(command.producer, command.value)
        ticket = self._keep(CheckpointRecord(topic.name, command.producer, offset, command.value))
        reply = f"+OK checkpoint {topic.name} {command.producer}\n".encode()
        session.outbox.expect_record(ticket, reply)
        self._awaiting_records.add(session)
        self.work.must_sync_records = True

    def _topics(self, session: Session, command: commands.Topics, now_ms: int) -> None:
        self._reply(session, b"+OK topics %b\n" % msgspec.json.encode(reports.topics(self.topics.values())))

    def _stats(self, session: Session, command: commands.Stats, now_ms: int) -> None:
        report = reports.stats(self.topics.values(), len(self.sessions), self.counts)
        self._reply(session, b"+OK stats %b\n" % msgspec.json.encode(report))

    def _help(self, session: Session, command: commands.Help, now_ms: int) -> None:
        self._reply(session, f"+OK {help_texts.help_text(command.verb)}\n".encode())

    def _ping(self, session: Session, command: commands.Ping, now_ms: int) -> None:
        self._reply(session, b"+PONG\n")

    def _quit(self, session: Session, command: commands.Quit, now_ms: int) -> None:
        self._reply(session, b"+OK bye\n")
        session.is_leaving = True

    # Delivery

    def _pump(self, subscription: Subscription) -> None:
        """Give waiting events to consumers that have room, until one of the two has run out."""
        topic = self.topics[subscription.topic]
        for consumer in subscription.next_consumers():
            while (room := consumer.room) > 0:
                taken = subscription.take(min(room, TAKE_MAX, max(1, TAKE_BYTES // topic.recent.mean_bytes)))
                if not taken:
                    return
                self._hand_over(topic, consumer, taken)

    def _hand_over(self, topic: Topic, consumer: Consumer, taken: list[Taken]) -> None:
        offsets: list[int] = []
        for slot, run in taken:
            consumer.in_flight.update(zip(run, range(slot, slot + len(run)), strict=True))
            offsets += run
        lines = topic.recent.lines(offsets)
        if lines is None:
            consumer.fetching = True
            self.work.fetches.append(Fetch(consumer, offsets))
        else:
            self._deliver(consumer, offsets, lines)

    def _deliver(self, consumer: Consumer, offsets: list[int], lines: list[bytes]) -> None:
        tries = consumer.subscription.failed_tries
        if tries:
            lines = [
                redelivered(line, tries[offset] + 1) if offset in tries else line
                for offset, line in zip(offsets, lines, strict=True)
            ]
        consumer.deliver(offsets, lines)
        self.counts["delivered"] += len(lines)
        self.work.sessions.add(consumer.session)

    def _meant(self, consumers: list[Consumer], command: commands.Ack) -> Iterator[tuple[Consumer, list[int]]]:
        """Find the events in flight that an ack's refs mean; where several consumers could have one, the first has it."""
        if command.offsets is not None and len(consumers) == 1:
            yield consumers[0], command.offsets
            return
        for ref in command.offsets or command.refs:
            for consumer in consumers:
                offset = self._find(consumer, ref)
                if offset is not None:
                    yield consumer, [offset]
                    break

    def _find(self, consumer: Consumer, ref: int | str) -> int | None:
        if isinstance(ref, str) and not consumer.knows_ids:
            found = self.topics[consumer.subscription.topic].read_lines(list(consumer.in_flight))
            consumer.note_ids([offset for offset, _ in found], [line for _, line in found])
        return consumer.find(ref)

    def _settle(self, consumer: Consumer, offsets: list[int]) -> int:
        """Settle what of `offsets` is in flight with a consumer; returns how many."""
        subscription = consumer.subscription
        settled = consumer.settle(offsets)
        if settled:
            subscription.settled += len(settled)
            self.counts["acked"] += len(settled)
            for offset in subscription.failed_tries.keys() & settled.keys():
                del subscription.failed_tries[offset]
            if subscription.is_durable:
                self._keep(subscription.settled_record(settled))
        return len(settled)

    def _detach(self, consumer: Consumer) -> None:
        subscription = consumer.subscription
        subscription.consumers.remove(consumer)
        if not subscription.is_durable:
            del self.topics[subscription.topic].subscriptions[subscription.name]
            return
        for offset in consumer.in_flight:
            subscription.failed_tries[offset] = subscription.failed_tries.get(offset, 0) + 1
        subscription.redelivered += len(consumer.in_flight)
        subscription.give_back(consumer.in_flight)
        consumer.in_flight = {}
        self._pump(subscription)

    # Replies

    def _reply(self, session: Session, line: bytes) -> None:
        session.outbox.reply(line)
        self.work.sessions.add(session)

    def _confirm(self, topic: Topic) -> None:
        awaiting = self._awaiting[topic.name]
        for session in list(awaiting):
            self._release(session)
            if not session.outbox.is_waiting:
                awaiting.discard(session)

    def _release(self, session: Session) -> None:
        session.outbox.confirm(self._visible, self._records_synced, self.promise)
        self.work.sessions.add(session)

    def _keep(self, record: Record) -> int:
        """Leave a record for the state; returns its number."""
        self.work.records.append(record)
        self._records_kept += 1
        return self._records_kept

    def _existing(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise Refusal("unknown_topic", name)
        return topic

    @staticmethod
    def _start(topic: Topic, start: object) -> int:
        if start == "earliest":
            return topic.log.earliest
        return start if isinstance(start, int) else topic.visible
