"""The records of the journal, which hold the durable state of the broker except for the events.

They store subscriptions and their settled events, producers and their checkpoints, marks, documentation, retention, and
open handshakes. A new member of a record must have a default, so that a journal of the previous release can be read.
"""

from typing import TypeAlias

from msgspec import Struct

from broker.journal.handshake_records import (
    FinishedRecord,
    HandshakeRecord,
    HeldRecord,
    ReleasedRecord,
    TakenRecord,
)
from broker.journal.mark_records import MarkRecord
from broker.journal.pattern_records import EndedPatternRecord, PatternRecord
from broker.journal.schedule_record import ScheduleRecord
from tweetwire.protocol.failures import Attempts, Failure
from tweetwire.protocol.policy import Policy
from tweetwire.protocol.retention import Retention

__all__ = [
    "CheckpointRecord",
    "ClientRecord",
    "CommentRecord",
    "DeadRecord",
    "DescriptionRecord",
    "DiscardedRecord",
    "DocumentationChange",
    "DroppedRecord",
    "FailedRecord",
    "FinishedRecord",
    "ForgottenRecord",
    "HandshakeRecord",
    "HeldRecord",
    "LetterRecord",
    "PausedRecord",
    "PolicyRecord",
    "ProducersRecord",
    "PurgedRecord",
    "Record",
    "RedrivenRecord",
    "ReleasedRecord",
    "RetentionRecord",
    "ScheduleRecord",
    "SchemaRecord",
    "SettledRecord",
    "SubscriptionChange",
    "SubscriptionRecord",
    "TakenRecord",
    "TopicRecord",
    "UnsubscribedRecord",
]


class SubscriptionRecord(Struct, tag="subscription"):
    """A durable subscription in its current state, which began at offset `start`.

    - `floors`: for each priority, the offset below which all events are settled, except those that are `open` or `dead`.
    - `floor`: the same for the priorities that `floors` does not name.
    - `open`: the offsets of unsettled events below their floor.
    - `dead`: (offset, offset of the dead letter) of each dead event.
    - `dying`: the same for open events whose dead letter may not be stored yet.
    - `attempts`: by offset, the failed tries of events that are open or dead.
    - `owners`: the users that own the subscription.
    - `is_paused`: whether no events are delivered.
    - `is_sought`: whether a seek made this record. The events that clients had taken before are then finished.
    - `has_schedule`: whether the topic's `ScheduleRecord` names further open events below their floor.
    """

    topic: str
    name: str
    start: int
    floor: int
    floors: dict[int, int]
    policy: Policy
    open: list[int] = []
    dead: list[tuple[int, int]] = []
    attempts: dict[int, Attempts] = {}
    owners: list[str] = []
    dying: list[tuple[int, int]] = []
    is_paused: bool = False
    is_sought: bool = False
    has_schedule: bool = False


class SettledRecord(Struct, tag="settled"):
    """The events that a subscription settled: by priority, runs (first, last) of events that follow each other in its lane."""

    topic: str
    name: str
    runs: dict[int, list[tuple[int, int]]]


class FailedRecord(Struct, tag="failed", omit_defaults=True):
    """A failed try of an open event.

    `letter` is the offset of the event's dead letter if this was the last try, -1 if that offset is not known yet. It is
    None if the event is tried again.
    """

    topic: str
    name: str
    offset: int
    failure: Failure
    is_strike: bool
    letter: int | None = None


class LetterRecord(Struct, tag="letter"):
    """The new offset `letter` of a dying event's dead letter, which had to be written again."""

    topic: str
    name: str
    offset: int
    letter: int


class DeadRecord(Struct, tag="dead"):
    """A dead event and the offset `letter` of its dead letter."""

    topic: str
    name: str
    offset: int
    priority: int
    letter: int


class RedrivenRecord(Struct, tag="redriven"):
    """Dead events that were redriven and wait for delivery again."""

    topic: str
    name: str
    offsets: list[int]


class DiscardedRecord(Struct, tag="discarded"):
    """Dead events that were settled without a delivery: their offsets by priority."""

    topic: str
    name: str
    offsets: dict[int, list[int]]


class PausedRecord(Struct, tag="paused"):
    """The beginning or the end of a pause of a subscription."""

    topic: str
    name: str
    is_paused: bool


class PolicyRecord(Struct, tag="policy"):
    """The new policy of a subscription."""

    topic: str
    name: str
    policy: Policy


class ClientRecord(Struct, tag="client"):
    """The subscriptions that a named client was last attached to: (topic, subscription, prefetch)."""

    client: str
    attached: list[tuple[str, str, int]]


class UnsubscribedRecord(Struct, tag="unsubscribed"):
    """The end of a durable subscription, which is deleted."""

    topic: str
    name: str


class CheckpointRecord(Struct, tag="checkpoint"):
    """A checkpoint that a producer sent without an event, after its event at `offset` (-1 if it has no event)."""

    topic: str
    producer: str
    offset: int
    value: str


class ForgottenRecord(Struct, tag="forgotten"):
    """A producer that was forgotten: a start ignores its name in events below offset `below`."""

    topic: str
    producer: str
    below: int


class ClaimedRecord(Struct, tag="claimed"):
    """A claim of a producer: from now on, its events need this epoch. A later record replaces an earlier one."""

    topic: str
    producer: str
    epoch: int


class ProducersRecord(Struct, tag="producers"):
    """All producers of a topic: {name: (offset, sequence, checkpoint)}, from the events below offset `scanned`."""

    topic: str
    scanned: int
    table: dict[str, tuple[int, int | None, str | None]]


class DescriptionRecord(Struct, tag="description"):
    """The description of a topic."""

    topic: str
    text: str


class SchemaRecord(Struct, tag="schema"):
    """The JSON Schema that a topic's events must match, None if it was removed."""

    topic: str
    schema: str | None


class CommentRecord(Struct, tag="comment"):
    """A comment on a topic: its text, when (ms) it was made, and by which client."""

    topic: str
    at: int
    client: str
    text: str


class RetentionRecord(Struct, tag="retention"):
    """The retention of a topic."""

    topic: str
    retention: Retention


class PurgedRecord(Struct, tag="purged"):
    """The events of a topic below offset `below` were deleted, even if a segment still has them."""

    topic: str
    below: int


class DroppedRecord(Struct, tag="dropped"):
    """A topic that was deleted. Earlier records of the topic do not apply to a new topic with the same name."""

    topic: str


SubscriptionChange: TypeAlias = (
    SettledRecord
    | FailedRecord
    | LetterRecord
    | DeadRecord
    | RedrivenRecord
    | DiscardedRecord
    | PausedRecord
    | PolicyRecord
    | UnsubscribedRecord
)
DocumentationChange: TypeAlias = DescriptionRecord | SchemaRecord | CommentRecord
TopicRecord: TypeAlias = (
    SubscriptionRecord
    | SubscriptionChange
    | CheckpointRecord
    | ForgottenRecord
    | ClaimedRecord
    | ProducersRecord
    | ScheduleRecord
    | ClientRecord
    | MarkRecord
    | DocumentationChange
    | RetentionRecord
    | PurgedRecord
    | DroppedRecord
)
Record: TypeAlias = TopicRecord | HandshakeRecord | PatternRecord | EndedPatternRecord
