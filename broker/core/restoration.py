"""How a broker stands where it stood: the state's records over the logs, which are the truth."""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from copy import deepcopy
from typing import Final, NamedTuple

import msgspec

from broker.core.broker import Broker
from broker.core.producers import Producer
from broker.core.topic import Topic
from broker.errors import Refusal
from broker.events import StoredEvent, decode_stored
from broker.failures import Attempts
from broker.protocol.policy import Policy
from broker.state import (
    CheckpointRecord,
    ClientRecord,
    CommentRecord,
    DeadRecord,
    DescriptionRecord,
    DocumentationChange,
    FailedRecord,
    FinishedRecord,
    HandshakeRecord,
    HeldRecord,
    PolicyRecord,
    ProducersRecord,
    Record,
    RedrivenRecord,
    ReleasedRecord,
    RetentionRecord,
    SchemaRecord,
    SettledRecord,
    SubscriptionChange,
    SubscriptionRecord,
    TakenRecord,
    TopicRecord,
    UnsubscribedRecord,
)

__all__ = ["Skipped", "restore"]

_READ_BYTES: Final = 4 << 20


class _Kept:
    """What the records say of one subscription."""

    def __init__(self, record: SubscriptionRecord) -> None:
        self.record = deepcopy(record)
        self.settled: list[SettledRecord] = []

    @property
    def reached(self) -> int:
        """The lowest offset above all that the records tell of."""
        settled = (last for one in self.settled for runs in one.runs.values() for _, last in runs)
        letters = (offset for offset, _ in self.record.dead)
        return max(self.record.floor, 1 + max((-1, *settled, *self.record.open, *letters)))

    def note(self, change: SubscriptionChange) -> None:
        """Apply what came behind the record."""
        record = self.record
        match change:
            case SettledRecord():
                self.settled.append(change)
            case FailedRecord():
                before = record.attempts.get(change.offset)
                record.attempts[change.offset] = Attempts.after(before, change.failure, is_strike=change.is_strike)
            case DeadRecord():
                record.dead.append((change.offset, change.letter))
            case RedrivenRecord():
                self._redrive(set(change.offsets))
            case PolicyRecord():
                record.policy = change.policy

    def _redrive(self, offsets: set[int]) -> None:
        record = self.record
        record.dead = [(offset, letter) for offset, letter in record.dead if offset not in offsets]
        record.open = [*record.open, *offsets.difference(record.open)]
        for offset in offsets & record.attempts.keys():
            record.attempts[offset] = record.attempts[offset].forgiven()


class Skipped(NamedTuple):
    """Offsets first…last of a topic, which the state knows and the log has lost; no event is given one of them again."""

    topic: str
    first: int
    last: int


def restore(broker: Broker, records: Iterable[Record]) -> list[Skipped]:
    """Make the subscriptions and producers that `records` tell of; records of topics whose log is gone are left out.

    Raises OSError where a log that ends before what the state knows cannot be made to go on behind it.
    """
    subscriptions: dict[tuple[str, str], _Kept] = {}
    producers: dict[str, ProducersRecord] = {}
    checkpoints: list[CheckpointRecord] = []
    handshakes, others = _sorted_out(records)
    for record in others:
        match record:
            case ProducersRecord():
                producers[record.topic] = record
            case CheckpointRecord():
                checkpoints.append(record)
            case ClientRecord():
                broker.attached[record.client] = record.attached
            case SubscriptionRecord():
                subscriptions[record.topic, record.name] = _Kept(record)
            case DescriptionRecord() | SchemaRecord() | CommentRecord() | RetentionRecord():
                _restore_settings(broker, record)
            case UnsubscribedRecord():
                subscriptions.pop((record.topic, record.name), None)
            case _:
                _note(subscriptions, record)
    skipped = _skip_lost(broker, subscriptions.values(), producers.values())
    for topic in broker.topics.values():
        _restore_producers(topic, producers.get(topic.name))
    for checkpoint in checkpoints:
        if checkpoint.topic in broker.topics:
            broker.topics[checkpoint.topic].producers.restore_checkpoint(
                checkpoint.producer, checkpoint.offset, checkpoint.value
            )
    _restore_subscriptions(broker, subscriptions.values())
    broker.handshakes.restore(handshakes)
    return skipped


def _sorted_out(records: Iterable[Record]) -> tuple[list[HandshakeRecord], list[TopicRecord]]:
    """Part the records of handshakes, save those of subscriptions that were ended since, from the others."""
    handshakes: list[HandshakeRecord] = []
    others: list[TopicRecord] = []
    for record in records:
        if isinstance(record, HeldRecord | ReleasedRecord | TakenRecord | FinishedRecord):
            handshakes.append(record)
        else:
            others.append(record)
            if isinstance(record, UnsubscribedRecord):
                handshakes = [one for one in handshakes if not _is_of(one, record)]
    return handshakes, others


def _is_of(one: HandshakeRecord, ended: UnsubscribedRecord) -> bool:
    return isinstance(one, TakenRecord | FinishedRecord) and (one.topic, one.name) == (ended.topic, ended.name)


def _note(subscriptions: dict[tuple[str, str], _Kept], change: SubscriptionChange) -> None:
    """Apply a change to its subscription; one whose beginning was damaged begins at the first event again."""
    key = (change.topic, change.name)
    if key not in subscriptions and isinstance(change, SettledRecord):
        subscriptions[key] = _Kept(SubscriptionRecord(change.topic, change.name, 0, 0, {}, Policy()))
    if key in subscriptions:
        subscriptions[key].note(change)


def _skip_lost(broker: Broker, kept: Iterable[_Kept], producers: Iterable[ProducersRecord]) -> list[Skipped]:
    """Have logs that lost their end go on behind the highest offset that the state knows."""
    reached: dict[str, int] = defaultdict(int)
    for one in kept:
        reached[one.record.topic] = max(reached[one.record.topic], one.reached)
    for table in producers:
        reached[table.topic] = max(reached[table.topic], table.scanned)
    skipped: list[Skipped] = []
    for name, offset in reached.items():
        topic = broker.topics.get(name)
        if topic is not None and offset > topic.visible:
            skipped.append(Skipped(name, topic.visible, offset - 1))
            broker.skip_to(topic, offset)
    return skipped


def _restore_settings(broker: Broker, change: DocumentationChange | RetentionRecord) -> None:
    """Take what was set for a topic.

    A schema that an older library took and this one does not is left out, since a start must not fail.
    """
    topic = broker.topics.get(change.topic)
    if topic is None:
        return
    if isinstance(change, RetentionRecord):
        topic.retention = change.retention
        return
    with suppress(Refusal):
        topic.documentation.apply(change)


def _restore_producers(topic: Topic, record: ProducersRecord | None) -> None:
    """Take the kept table and read what the log has behind it."""
    at = topic.log.earliest
    if record is not None and record.scanned <= topic.visible:
        at = max(at, record.scanned)
        for name, (offset, sequence, checkpoint) in record.table.items():
            topic.producers.accepted[name] = Producer(offset, sequence, checkpoint)
    while at < topic.visible:
        lines, at, _ = topic.log.read(at, topic.visible - at, _READ_BYTES)
        for line in lines:
            if b'"producer":' in line:
                _accept(topic, line)
    topic.producers.begin_write()
    topic.producers.stored = dict(topic.producers.accepted)
    topic.producers.commit()


def _accept(topic: Topic, line: bytes) -> None:
    try:
        event: StoredEvent = decode_stored(line)
    except msgspec.MsgspecError:
        return
    topic.producers.accept(event, event.offset)


def _restore_subscriptions(broker: Broker, kept: Iterable[_Kept]) -> None:
    by_topic: dict[str, list[_Kept]] = defaultdict(list)
    for one in kept:
        if one.record.topic in broker.topics:
            by_topic[one.record.topic].append(one)
    for name, of_topic in by_topic.items():
        topic = broker.topics[name]
        for one in of_topic:
            record = _clamped(one.record, topic)
            lowest = min([record.floor, *record.floors.values()])
            subscription = topic.subscribe(record.name, lowest, record.policy, is_durable=True)
            subscription.start = record.start
            subscription.restore(record, one.settled, topic.log.priority_of)


def _clamped(record: SubscriptionRecord, topic: Topic) -> SubscriptionRecord:
    """Move what points beyond the log, or before its first event, to where the log is."""
    earliest, visible = topic.log.earliest, topic.visible
    record.floor = min(max(record.floor, earliest), visible)
    record.floors = {p: min(max(floor, earliest), visible) for p, floor in record.floors.items()}
    record.attempts = {offset: tries for offset, tries in record.attempts.items() if offset >= earliest}
    record.open = [offset for offset in record.open if earliest <= offset < visible]
    record.dead = [(offset, letter) for offset, letter in record.dead if earliest <= offset < visible]
    return record
