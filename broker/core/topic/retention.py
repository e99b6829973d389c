"""Decide which old and purged events a topic may forget, and which events its subscriptions lose."""

from typing import NamedTuple

from broker.core.internal_topics import DEFAULT_RETENTION
from broker.core.topic.topic import Topic
from broker.journal.records import PurgedRecord, RetentionRecord
from broker.log import first_kept
from tweetwire.protocol.retention import Retention

__all__ = ["Forgetting", "forget_expired", "retention_records"]


class Forgetting(NamedTuple):
    """A topic forgets all events below offset `below`.

    `overtaken` counts the unsettled events that each subscription loses, and `unmarked` the events that each mark has not
    passed.
    """

    below: int
    overtaken: dict[str, int]
    unmarked: dict[str, int]


def forget_expired(topic: Topic, now_ms: int) -> Forgetting | None:
    """Decide which events a topic forgets now, and let its subscriptions skip them. Return None if it keeps all events.

    Purged events, which the subscriptions have passed already, are among them. The caller removes the events from the log.
    """
    log = topic.log
    if topic.retention == Retention() and not log.hidden_below:
        return None
    spans = log.spans()
    below = max(log.hidden_below, first_kept(spans, log.size, topic.retention, lambda: _needed(topic), now_ms))
    if not spans or below < spans[0].next:
        return None
    topic.schedule.drop_below(below)
    # The subscriptions have already skipped purged events.
    passing = topic.subscriptions if below > log.earliest else {}
    overtaken = {name: subscription.overtake(below) for name, subscription in passing.items()}
    unmarked = topic.marks.overtake(log.earliest, below)
    return Forgetting(below, {name: count for name, count in overtaken.items() if count}, unmarked)


def retention_records(topic: Topic) -> list[RetentionRecord | PurgedRecord]:
    """Return the records that keep a topic's retention, and the offset below which its events are purged.

    The second record is kept until the end of this process, since a removed segment may still be on the disk.
    """
    is_default = topic.retention == DEFAULT_RETENTION.get(topic.name, Retention())
    kept: list[RetentionRecord | PurgedRecord] = [] if is_default else [RetentionRecord(topic.name, topic.retention)]
    if topic.log.hidden_below:
        kept.append(PurgedRecord(topic.name, topic.log.hidden_below))
    return kept


def _needed(topic: Topic) -> int | None:
    """Return the lowest offset that a durable subscription has not settled, or that a mark has not passed.

    Return None if no subscription is durable and there is no mark.
    """
    durable = [subscription for subscription in topic.subscriptions.values() if subscription.is_durable]
    needed = [one.lowest_unsettled(topic.visible) for one in durable]
    if (marked := topic.marks.lowest()) is not None:
        needed.append(marked)
    return min(needed, default=None)
