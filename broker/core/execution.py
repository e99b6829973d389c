"""What each command does. A method takes its command and leaves exactly one reply, or raises Refusal."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from broker.core import reports
from broker.core.consumer import Consumer
from broker.core.documentation import Documents
from broker.core.outbox import refusal_line
from broker.core.redrives import Redrive
from broker.core.retention import Retentions
from broker.core.session import Session
from broker.core.subscription import Subscription
from broker.core.topic import Topic
from broker.core.work import Lookup, Reading
from broker.errors import Refusal
from broker.failures import Failure
from broker.protocol import commands, help_texts
from broker.protocol.event_lines import line_id
from broker.protocol.policy import DEFAULT_POLICY
from broker.state import CheckpointRecord, ClientRecord, PolicyRecord, UnsubscribedRecord

if TYPE_CHECKING:
    from broker.core.broker import Broker

__all__ = ["Execution"]

SUBSCRIPTIONS_MAX: Final = 100_000


class Execution:
    """Carries out commands on a broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        documents, handshakes = Documents(broker), broker.handshakes
        self._methods: dict[type[Any], Callable[[Session, Any, int], None]] = {
            commands.Publish: self._publish,
            commands.Ack: self._ack,
            commands.Nack: self._nack,
            commands.Extend: self._extend,
            commands.Hello: self._hello,
            commands.Subscribe: self._subscribe,
            commands.Unsubscribe: self._unsubscribe,
            commands.Read: self._read,
            commands.Last: self._last,
            commands.Checkpoint: self._checkpoint,
            commands.Topics: self._topics,
            commands.Stats: self._stats,
            commands.Explain: self._explain,
            commands.Dead: self._dead,
            commands.Redrive: self._redrive,
            commands.Unsettled: self._unsettled,
            commands.Backlog: self._backlog,
            commands.Clients: self._clients,
            commands.Describe: documents.describe,
            commands.Documentation: documents.show,
            commands.SetSchema: documents.set_schema,
            commands.Schema: documents.show_schema,
            commands.Comment: documents.comment,
            commands.Retain: Retentions(broker).retain,
            commands.Chain: self._chain,
            commands.Pub2: handshakes.pub2,
            commands.Pubrel: handshakes.pubrel,
            commands.Pubrec: handshakes.pubrec,
            commands.Pubcomp: handshakes.pubcomp,
            commands.Help: self._help,
            commands.Ping: self._ping,
            commands.Quit: self._quit,
        }

    def carry_out(self, session: Session, command: commands.Command, now_ms: int) -> None:
        """Do what a command asks for. Raises Refusal."""
        self._methods[type(command)](session, command, now_ms)

    def _publish(self, session: Session, command: commands.Publish, now_ms: int) -> None:
        self._broker.counts["commands"] += len(command.events) - 1
        self._broker.publish(session, command.topic, command.events, now_ms)

    # Settling

    def _ack(self, session: Session, command: commands.Ack, now_ms: int) -> None:
        consumers = self._consumers(session, command.topic)
        settled = 0
        if command.offsets is not None and len(consumers) == 1:
            settled = self._broker.delivery.settle(consumers[0], command.offsets)
        else:
            for consumer, offset in self._meant(consumers, command.offsets or command.refs):
                settled += self._broker.delivery.settle(consumer, [offset])
        if not settled:
            raise _stale()
        if not session.is_quiet:
            self._broker.reply(session, f"+OK ack {command.topic} {settled}")
        for consumer in consumers:
            self._broker.delivery.pump(consumer.subscription, now_ms)

    def _nack(self, session: Session, command: commands.Nack, now_ms: int) -> None:
        failure = Failure(now_ms, "nack", session.name, command.message, command.code, command.trace)
        for consumer, offset in self._meant(self._consumers(session, command.topic), [command.ref]):
            self._broker.delivery.fail(consumer, [offset], failure)
            if not session.is_quiet:
                self._broker.reply(session, f"+OK nack {command.topic} 1")
            self._broker.delivery.pump(consumer.subscription, now_ms)
            return
        raise _stale()

    def _extend(self, session: Session, command: commands.Extend, now_ms: int) -> None:
        extended = 0
        for consumer, offset in self._meant(self._consumers(session, command.topic), command.refs):
            self._broker.delivery.extend(consumer, offset, now_ms)
            extended += 1
        if not extended:
            raise _stale()
        self._broker.reply(session, f"+OK extend {command.topic} {extended}")

    # Subscribing

    def _hello(self, session: Session, command: commands.Hello, now_ms: int) -> None:
        session.name, session.is_quiet, session.is_named = command.name, command.is_quiet, True
        self._broker.reply(session, f"+OK hello {command.name}")
        if command.is_resuming:
            for topic_name, name, prefetch in self._broker.attached.get(command.name, []):
                topic = self._broker.topics.get(topic_name)
                if topic is not None and name in topic.subscriptions:
                    self._attach(session, topic, topic.subscriptions[name], prefetch, now_ms)

    def _subscribe(self, session: Session, command: commands.Subscribe, now_ms: int) -> None:
        topic = self._topic(command.topic) if not command.may_create else self._broker.topic(command.topic)
        name = command.name or f"conn-{session.number}"
        subscription = topic.subscriptions.get(name)
        if subscription is None:
            if len(topic.subscriptions) >= SUBSCRIPTIONS_MAX:
                raise Refusal("too_many", f"{topic.name} has {SUBSCRIPTIONS_MAX} subscriptions")
            start, policy = self._start(topic, command.start), DEFAULT_POLICY.changed(command.change)
            subscription = topic.subscribe(name, start, policy, is_durable=command.name is not None)
            if subscription.is_durable:
                self._broker.work.keep(subscription.record(topic.visible))
        elif command.change:
            subscription.policy = subscription.policy.changed(command.change)
            if subscription.is_durable:
                self._broker.work.keep(PolicyRecord(topic.name, name, subscription.policy))
        self._attach(session, topic, subscription, command.prefetch, now_ms)

    def _attach(self, session: Session, topic: Topic, subscription: Subscription, prefetch: int, now_ms: int) -> None:
        key = (topic.name, subscription.name)
        if key not in session.consumers:
            session.consumers[key] = Consumer(session, subscription, prefetch)
            subscription.consumers.append(session.consumers[key])
            self._broker.handshakes.attach(session.consumers[key])
        session.consumers[key].prefetch = prefetch
        self._note_attached(session)
        self._broker.reply(
            session,
            f"+OK sub {topic.name} as={subscription.name} from={subscription.start}"
            f" pending={subscription.waiting} prefetch={prefetch}",
        )
        self._broker.delivery.pump(subscription, now_ms)

    def _unsubscribe(self, session: Session, command: commands.Unsubscribe, now_ms: int) -> None:
        topic = self._topic(command.topic)
        mine = session.consumers_of(topic.name)
        name = command.name or (mine[0].subscription.name if mine else "")
        subscription = topic.subscriptions.pop(name, None)
        if subscription is None:
            raise Refusal("not_subscribed", f"{topic.name} has no subscription {name}".rstrip())
        for consumer in list(subscription.consumers):
            self._broker.delivery.forget(consumer)
            del consumer.session.consumers[topic.name, name]
            self._note_attached(consumer.session)
        self._broker.handshakes.forget(topic.name, name)
        if subscription.is_durable:
            self._broker.work.keep(UnsubscribedRecord(topic.name, name))
        self._broker.reply(session, f"+OK unsub {topic.name}")

    def _note_attached(self, session: Session) -> None:
        """Remember what a named client is attached to, for its next ``hello … resume``."""
        if session.is_named and self._broker.attached.get(session.name, []) != session.attached:
            self._broker.attached[session.name] = session.attached
            self._broker.work.keep(ClientRecord(session.name, session.attached))

    # Reading

    def _read(self, session: Session, command: commands.Read, now_ms: int) -> None:
        topic = self._topic(command.topic)
        start = min(self._start(topic, command.start), topic.visible)
        count = min(command.limit, topic.visible - start)
        answer = session.outbox.expect_answer()
        self._broker.work.readings.append(Reading(session, topic, start, count, command.bytes_max, answer))

    def _last(self, session: Session, command: commands.Last, now_ms: int) -> None:
        producer = self._topic(command.topic).producers.stored.get(command.producer)
        self._broker.reply(session, f"+OK last {command.topic} {command.producer} {_json(producer)}")

    def _checkpoint(self, session: Session, command: commands.Checkpoint, now_ms: int) -> None:
        topic = self._broker.topic(command.topic)
        offset = topic.producers.set_checkpoint(command.producer, command.value)
        record = CheckpointRecord(topic.name, command.producer, offset, command.value)
        self._broker.reply_when_kept(session, record, f"+OK checkpoint {topic.name} {command.producer}")

    # Telling

    def _topics(self, session: Session, command: commands.Topics, now_ms: int) -> None:
        self._broker.reply(session, f"+OK topics {_json(reports.topics(self._visible_to(session)))}")

    def _stats(self, session: Session, command: commands.Stats, now_ms: int) -> None:
        broker = self._broker
        topics = self._visible_to(session)
        report = reports.stats(topics, len(broker.sessions), broker.counts, broker.handshakes.report())
        broker.reply(session, f"+OK stats {_json(report)}")

    def _explain(self, session: Session, command: commands.Explain, now_ms: int) -> None:
        topic = self._topic(command.topic)
        subscription = self._subscription(topic, command.name)
        offset = self._offset(topic, command.ref)
        explanation = reports.explain(topic, subscription, offset, now_ms)
        self._broker.reply(session, f"+OK explain {topic.name} @{offset} {_json(explanation)}")

    def _chain(self, session: Session, command: commands.Chain, now_ms: int) -> None:
        topic, topics = self._topic(command.topic), list(self._broker.topics.values())
        seen = {one.name for one in topics if session.access.may_read(one.name)}

        def look_up() -> bytes:
            try:
                tree = self._broker.chains.trace(topics, seen, topic, command.ref, command.limit)
            except Refusal as refusal:
                return refusal_line(refusal)
            return f"+OK chain {topic.name} {_json(tree)}\n".encode()

        self._broker.work.lookups.append(Lookup(session, look_up, session.outbox.expect_answer()))

    def _unsettled(self, session: Session, command: commands.Unsettled, now_ms: int) -> None:
        subscription = self._subscription(self._topic(command.topic), command.name)
        report = reports.unsettled(subscription, command.start, command.limit)
        self._broker.reply(session, f"+OK unsettled {command.topic} {_json(report)}")

    def _backlog(self, session: Session, command: commands.Backlog, now_ms: int) -> None:
        subscription = self._subscription(self._topic(command.topic), command.name)
        self._broker.reply(session, f"+OK backlog {command.topic} {_json(reports.backlog(subscription))}")

    def _clients(self, session: Session, command: commands.Clients, now_ms: int) -> None:
        found = reports.clients(self._broker.sessions.values(), command.limit)
        self._broker.reply(session, f"+OK clients {_json(found)}")

    def _dead(self, session: Session, command: commands.Dead, now_ms: int) -> None:
        found = reports.dead(self._visible_to(session), command.topic, command.name, command.limit)
        self._broker.reply(session, f"+OK dead {_json(found)}")

    def _redrive(self, session: Session, command: commands.Redrive, now_ms: int) -> None:
        topic = self._topic(command.topic)
        subscription = self._subscription(topic, command.name)
        if command.refs is None:
            offsets = sorted(subscription.dead)
        else:
            offsets = list(dict.fromkeys(self._dead_offset(topic, subscription, ref) for ref in command.refs))
        self._broker.reply(session, f"+OK redrive {topic.name} {len(offsets)}")
        self._broker.delivery.redrive(Redrive(subscription, offsets, command.rate), now_ms)

    def _help(self, session: Session, command: commands.Help, now_ms: int) -> None:
        self._broker.reply(session, f"+OK {help_texts.help_text(command.verb)}")

    def _ping(self, session: Session, command: commands.Ping, now_ms: int) -> None:
        self._broker.reply(session, "+PONG")

    def _quit(self, session: Session, command: commands.Quit, now_ms: int) -> None:
        for consumer in list(session.consumers.values()):
            self._broker.delivery.detach(consumer, now_ms, is_failure=False)
        session.consumers.clear()
        self._broker.reply(session, "+OK bye")
        session.is_leaving = True

    # Finding

    def _visible_to(self, session: Session) -> list[Topic]:
        return [topic for topic in self._broker.topics.values() if session.access.may_see(topic.name)]

    def _topic(self, name: str) -> Topic:
        topic = self._broker.topics.get(name)
        if topic is None:
            raise Refusal("unknown_topic", name)
        return topic

    def _subscription(self, topic: Topic, name: str) -> Subscription:
        subscription = topic.subscriptions.get(name)
        if subscription is None:
            raise Refusal("not_subscribed", f"{topic.name} has no subscription {name}")
        return subscription

    def _consumers(self, session: Session, topic: str) -> list[Consumer]:
        consumers = session.consumers_of(topic)
        if not consumers:
            raise Refusal("not_subscribed", f"this connection has no subscription to {topic}")
        return consumers

    def _meant(self, consumers: list[Consumer], refs: "list[int] | list[int | str]") -> Iterator[tuple[Consumer, int]]:
        """Find the events in flight that refs mean; where several consumers could have one, the first has it."""
        for ref in refs:
            for consumer in consumers:
                offset = self._broker.find_in_flight(consumer, ref)
                if offset is not None:
                    yield consumer, offset
                    break

    def _offset(self, topic: Topic, ref: int | str) -> int:
        """Find an event by its offset, or by its id among the newest ones."""
        offset = ref if isinstance(ref, int) else topic.recent.find_id(ref)
        if offset is None:
            raise Refusal(
                "no_event", f"no recent event of {topic.name} has the id {ref}; an older one is named @<offset>"
            )
        if offset >= topic.visible:
            raise Refusal("no_event", f"{topic.name} has the offsets {topic.log.earliest} to {topic.visible - 1}")
        return offset

    def _dead_offset(self, topic: Topic, subscription: Subscription, ref: int | str) -> int:
        if isinstance(ref, str):
            for offset, line in topic.read_lines(sorted(subscription.dead)):
                if line_id(line) == ref:
                    return offset
        elif ref in subscription.dead:
            return ref
        raise Refusal(
            "no_event", f"{ref if isinstance(ref, str) else f'@{ref}'} is no dead event of {subscription.name}"
        )

    @staticmethod
    def _start(topic: Topic, start: commands.Position) -> int:
        if isinstance(start, commands.Moment):
            return topic.log.offset_at(start.at_ms)
        if start == "earliest":
            return topic.log.earliest
        return start if isinstance(start, int) else topic.visible


def _stale() -> Refusal:
    return Refusal("stale", "nothing of that is in flight on this connection")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
