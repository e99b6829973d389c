"""Restore a broker's state from the records of the journal and from the logs. Where they differ, the logs are right."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from broker.core.delivery.deaths import Deaths
from broker.core.restored_producers import restore_producers
from broker.core.sessions import Sessions
from broker.core.topic.kept import KeptSubscription, restore_subscription
from broker.core.topic.kept_schedule import TimedPlace, restore_schedule
from broker.core.topic.marks import note_mark
from broker.core.topic.topic import Topic
from broker.core.topics import Topics
from broker.core.verbs.exactly_once import ExactlyOnce
from broker.journal.mark_records import ConfirmRecord, MarkedRecord, UnmarkedRecord
from broker.journal.records import (
    CheckpointRecord,
    ClaimedRecord,
    ClientRecord,
    CommentRecord,
    DescriptionRecord,
    DocumentationChange,
    DroppedRecord,
    FinishedRecord,
    ForgottenRecord,
    HandshakeRecord,
    HeldRecord,
    ProducersRecord,
    PurgedRecord,
    ReleasedRecord,
    RetentionRecord,
    ScheduleRecord,
    SchemaRecord,
    SettledRecord,
    SubscriptionChange,
    SubscriptionRecord,
    TakenRecord,
    TopicRecord,
    UnsubscribedRecord,
)
from tweetwire.protocol.policy import Policy

__all__ = ["Skipped", "restore"]

_StateRecord: TypeAlias = (
    SubscriptionRecord
    | SubscriptionChange
    | CheckpointRecord
    | ForgottenRecord
    | ClaimedRecord
    | ProducersRecord
    | PurgedRecord
    | MarkedRecord
    | UnmarkedRecord
    | ScheduleRecord
)


class Skipped(NamedTuple):
    """Offsets first…last of a topic that the journal knows and the log has lost. No event gets one of these offsets again."""

    topic: str
    first: int
    last: int


def restore(
    topics: Topics,
    sessions: Sessions,
    deaths: Deaths,
    exactly_once: ExactlyOnce,
    records: Iterable[TopicRecord | HandshakeRecord],
    *,
    now_ms: int,
) -> list[Skipped]:
    """Restore the subscriptions and producers in `records`, except those of topics whose log no longer exists.

    Such a topic is kept as dropped, so that its records never belong to a new topic with its name. Dead letters that are
    written again have the date `now_ms`. Raises OSError if a log has lost its end, and cannot continue after the
    offsets that the journal knows.
    """
    state = _State()
    handshakes, others = _sorted_out(_living(list(records)))
    for record in others:
        match record:
            case ClientRecord():
                sessions.restore_attached(record)
            case DescriptionRecord() | SchemaRecord() | CommentRecord() | RetentionRecord() | ConfirmRecord():
                _restore_settings(topics, record)
            case DroppedRecord():
                # `_living` has already left out the records of the dropped topic.
                pass
            case _:
                state.note(record)
    skipped = _skip_lost(topics, state)
    timed = _restore_producers(topics, state)
    # Purged events are hidden after their producers are known, and before subscriptions are clamped to the first event.
    for name, below in state.purged.items():
        if name in topics.by_name and below > topics.by_name[name].log.earliest:
            topics.by_name[name].hide_below(below)
    for name, marks in state.marks.items():
        if name in topics.by_name:
            topics.by_name[name].marks.restore(marks.values())
    _restore_subscriptions(topics, state, timed, now_ms)
    deaths.restore_dying((one for topic in topics for one in topic.subscriptions.values()), now_ms)
    exactly_once.restore_handshakes(handshakes)
    topics.keep_lost(one.topic for one in (*handshakes, *others) if not isinstance(one, ClientRecord))
    return skipped


class _State:
    """The subscriptions, the producers, the marks and the purged events of topics, as stored in the records."""

    def __init__(self) -> None:
        self.subscriptions: dict[tuple[str, str], KeptSubscription] = {}
        self.producers: dict[str, ProducersRecord] = {}
        self.checkpoints: list[CheckpointRecord] = []
        self.forgotten: dict[str, dict[str, int]] = defaultdict(dict)
        self.claims: dict[str, dict[str, int]] = defaultdict(dict)
        self.purged: dict[str, int] = {}
        self.marks: dict[str, dict[str, MarkedRecord]] = defaultdict(dict)
        self.schedules: dict[str, ScheduleRecord] = {}

    def note(self, record: _StateRecord) -> None:
        """Note the next record."""
        match record:
            case ProducersRecord():
                self.producers[record.topic] = record
            case CheckpointRecord():
                self.checkpoints.append(record)
            case ForgottenRecord():
                self.forgotten[record.topic][record.producer] = record.below
                self.claims[record.topic].pop(record.producer, None)
                _forget(record, self.producers, self.checkpoints)
            case ClaimedRecord():
                self.claims[record.topic][record.producer] = record.epoch
            case PurgedRecord():
                self.purged[record.topic] = record.below
            case MarkedRecord() | UnmarkedRecord():
                note_mark(self.marks[record.topic], record)
            case ScheduleRecord():
                self.schedules[record.topic] = record
            case SubscriptionRecord():
                self.subscriptions[record.topic, record.name] = KeptSubscription(record)
            case UnsubscribedRecord():
                self.subscriptions.pop((record.topic, record.name), None)
            case _:
                self._change(record)

    def _change(self, change: SubscriptionChange) -> None:
        """Change a subscription. If its first record was damaged, the subscription begins at the first event again."""
        key = (change.topic, change.name)
        if key not in self.subscriptions and isinstance(change, SettledRecord):
            self.subscriptions[key] = KeptSubscription(SubscriptionRecord(*key, 0, 0, {}, Policy()))
        if key in self.subscriptions:
            self.subscriptions[key].note(change)


def _living(records: list[TopicRecord | HandshakeRecord]) -> Iterator[TopicRecord | HandshakeRecord]:
    """Yield the records without those of topics that were dropped later.

    The records of clients lose the names of these topics.
    """
    dropped = {record.topic: at for at, record in enumerate(records) if isinstance(record, DroppedRecord)}
    for at, record in enumerate(records):
        if isinstance(record, ClientRecord):
            attached = [one for one in record.attached if at > dropped.get(one[0], -1)]
            yield ClientRecord(record.client, attached)
        elif at > dropped.get(record.topic, -1):
            yield record


def _sorted_out(records: Iterable[TopicRecord | HandshakeRecord]) -> tuple[list[HandshakeRecord], list[TopicRecord]]:
    """Return the records of handshakes and all other records.

    Handshakes are left out if their subscription has ended or ``seek`` has moved it since then.
    """
    handshakes: list[HandshakeRecord] = []
    others: list[TopicRecord] = []
    for record in records:
        if isinstance(record, HeldRecord | ReleasedRecord | TakenRecord | FinishedRecord):
            handshakes.append(record)
        else:
            others.append(record)
            if isinstance(record, UnsubscribedRecord) or (isinstance(record, SubscriptionRecord) and record.is_sought):
                handshakes = [one for one in handshakes if not _is_of(one, record)]
    return handshakes, others


def _is_of(one: HandshakeRecord, ended: UnsubscribedRecord | SubscriptionRecord) -> bool:
    return isinstance(one, TakenRecord | FinishedRecord) and (one.topic, one.name) == (ended.topic, ended.name)


def _skip_lost(topics: Topics, state: _State) -> list[Skipped]:
    """Continue logs that lost their end after the highest offset that the journal knows."""
    # A new event with a purged offset would be hidden.
    reached: dict[str, int] = defaultdict(int, state.purged)
    for one in state.subscriptions.values():
        reached[one.record.topic] = max(reached[one.record.topic], one.reached)
    for name, marks in state.marks.items():
        reached[name] = max(reached[name], *(mark.offset for mark in marks.values()), 0)
    for table in state.producers.values():
        reached[table.topic] = max(reached[table.topic], table.scanned)
    skipped: list[Skipped] = []
    for name, offset in reached.items():
        topic = topics.by_name.get(name)
        if topic is not None and offset > topic.visible:
            skipped.append(Skipped(name, topic.visible, offset - 1))
            topics.skip_to(topic, offset)
    return skipped


def _restore_producers(topics: Topics, state: _State) -> dict[str, list[TimedPlace]]:
    """Restore the producers of all topics. Return each topic's events after its kept producers that have times."""
    timed = {
        topic.name: restore_producers(topic, state.producers.get(topic.name), state.forgotten[topic.name])
        for topic in topics
    }
    for checkpoint in state.checkpoints:
        if checkpoint.topic in topics.by_name:
            topics.by_name[checkpoint.topic].producers.restore_checkpoint(
                checkpoint.producer, checkpoint.offset, checkpoint.value
            )
    for name, claims in state.claims.items():
        if name in topics.by_name:
            for producer, epoch in claims.items():
                topics.by_name[name].producers.restore_claim(producer, epoch)
    return timed


def _restore_settings(topics: Topics, change: DocumentationChange | RetentionRecord | ConfirmRecord) -> None:
    """Restore a topic's documentation, retention or confirmation."""
    topic = topics.by_name.get(change.topic)
    if topic is None:
        return
    if isinstance(change, RetentionRecord):
        topic.retention = change.retention
        return
    if isinstance(change, ConfirmRecord):
        topic.confirmation = change.confirmation
        return
    topic.documentation.apply(change)


def _forget(
    record: ForgottenRecord, producers: Mapping[str, ProducersRecord], checkpoints: list[CheckpointRecord]
) -> None:
    """Remove the records of a producer that are older than the command ``forget``."""
    if record.topic in producers:
        producers[record.topic].table.pop(record.producer, None)
    checkpoints[:] = [one for one in checkpoints if (one.topic, one.producer) != (record.topic, record.producer)]


def _restore_subscriptions(topics: Topics, state: _State, timed: Mapping[str, list[TimedPlace]], now_ms: int) -> None:
    by_topic: dict[str, list[KeptSubscription]] = defaultdict(list)
    for one in state.subscriptions.values():
        by_topic[one.record.topic].append(one)
    for topic in topics:
        of_topic, schedule = by_topic[topic.name], state.schedules.get(topic.name)
        released = restore_schedule(topic, schedule, timed[topic.name], of_topic, now_ms)
        for one in of_topic:
            record = _clamped(one.record, topic)
            lowest = min([record.floor, *record.floors.values()])
            subscription = topic.subscribe(record.name, lowest, record.policy, is_durable=True)
            subscription.start, subscription.owners = record.start, tuple(record.owners)
            subscription.pause(is_paused=record.is_paused)
            restore_subscription(subscription, record, one.settled, topic.log.priority_of, released)


def _clamped(record: SubscriptionRecord, topic: Topic) -> SubscriptionRecord:
    """Move the offsets of a record that are outside the log to the log's first or last event, or leave them out."""
    earliest, visible = topic.log.earliest, topic.visible
    record.floor = topic.nearest_place(record.floor)
    record.floors = {p: topic.nearest_place(floor) for p, floor in record.floors.items()}
    # A dying event stays in the record until its dead letter is stored, even if the log has lost the event.
    record.dying = [(offset, letter) for offset, letter in record.dying if offset < visible]
    dying = {offset for offset, _ in record.dying}
    record.attempts = {at: tries for at, tries in record.attempts.items() if at >= earliest or at in dying}
    record.open = [offset for offset in record.open if earliest <= offset < visible]
    record.dead = [(offset, letter) for offset, letter in record.dead if earliest <= offset < visible]
    return record
