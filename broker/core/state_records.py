"""The records of the whole durable state, except for the events."""

from broker.core.patterns import Patterns
from broker.core.sessions import Sessions
from broker.core.topic.kept import subscription_record
from broker.core.topic.kept_schedule import schedule_records
from broker.core.topic.retention import retention_records
from broker.core.topics import Topics
from broker.core.verbs.exactly_once import ExactlyOnce
from broker.journal.mark_records import ConfirmRecord
from broker.journal.records import Record
from tweetwire.protocol.confirmation import Confirmation

__all__ = ["state_records"]


def state_records(sessions: Sessions, topics: Topics, exactly_once: ExactlyOnce, patterns: Patterns) -> list[Record]:
    """Return records of the whole current state, for a snapshot or a backup."""
    kept: list[Record] = [*sessions.records()]
    for topic in topics:
        kept.append(topic.producers.record(topic.name, topic.visible))
        kept += topic.producers.claims.records(topic.name)
        kept += topic.documentation.records(topic.name)
        kept += retention_records(topic)
        kept += topic.marks.records(topic.name)
        if topic.confirmation != Confirmation():
            kept.append(ConfirmRecord(topic.name, topic.confirmation))
        kept += schedule_records(topic)
        kept += [
            subscription_record(one, topic.visible, has_schedule=True)
            for one in topic.subscriptions.values()
            if one.is_durable
        ]
    kept += patterns.records()
    kept += exactly_once.records()
    return kept
