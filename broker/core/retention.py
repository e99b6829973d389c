"""Old events that go: what a topic may forget, and what becomes of subscriptions that are overtaken by it."""

from typing import TYPE_CHECKING, NamedTuple

from broker.core.session import Session
from broker.core.topic import Topic
from broker.errors import Refusal
from broker.log import first_kept
from broker.protocol import commands
from broker.protocol.retention import Retention
from broker.state import RetentionRecord

if TYPE_CHECKING:
    from broker.core.broker import Broker

__all__ = ["Forgetting", "Retentions", "forget", "retention_records"]


class Forgetting(NamedTuple):
    """What a topic forgets: all below offset `below`; `overtaken` are the events that each subscription loses by it."""

    below: int
    overtaken: dict[str, int]


class Retentions:
    """Carries out the command that says how long a topic's events stay."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def retain(self, session: Session, command: commands.Retain, now_ms: int) -> None:
        """Change a topic's retention, and tell it; a change is answered when the disk has it."""
        topic = self._broker.topics.get(command.topic)
        if topic is None:
            raise Refusal("unknown_topic", command.topic)
        topic.retention = topic.retention.changed(command.change)
        line = f"+OK retain {topic.name} {topic.retention}"
        if command.change:
            self._broker.reply_when_kept(session, RetentionRecord(topic.name, topic.retention), line)
        else:
            self._broker.reply(session, line)


def forget(topic: Topic, now_ms: int) -> Forgetting | None:
    """Decide what a topic forgets now, and move its subscriptions behind it; None where there is nothing.

    The caller has the log remove it.
    """
    below = first_kept(topic.log.spans(), topic.log.size, topic.retention, lambda: _needed(topic), now_ms)
    if below <= topic.log.earliest:
        return None
    overtaken = {name: subscription.overtake(below) for name, subscription in topic.subscriptions.items()}
    return Forgetting(below, {name: count for name, count in overtaken.items() if count})


def retention_records(topic: Topic) -> list[RetentionRecord]:
    """Return what must be kept of a topic's retention."""
    return [RetentionRecord(topic.name, topic.retention)] if topic.retention != Retention() else []


def _needed(topic: Topic) -> int | None:
    durable = [subscription for subscription in topic.subscriptions.values() if subscription.is_durable]
    return min((one.lowest_unsettled(topic.visible) for one in durable), default=None)
