"""Claiming: one client at a time publishes as a producer. A claim is confirmed once it is on the disk.

The reply to a claim also waits until all events that the topic accepted before the claim are stored or refused. So
``last`` then shows the true end of the producer, and no event of an earlier claim can come after it.
"""

from collections import defaultdict

from broker.core.desk import Desk
from broker.core.session import Session
from broker.core.topic.claims import Holder
from broker.core.topic.topic import Topic
from broker.core.verbs.handler import Handlers
from broker.journal.records import ClaimedRecord
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.verbs import claiming as commands

__all__ = ["Claiming"]


class Claiming:
    """Gives epochs to producers, and knows which producers each connection holds."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        # (topic, producer) of the producers that a connection has claimed, by its number
        self._held: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
        self.handlers: Handlers = {commands.Claim: self.claim}

    def claim(self, session: Session, command: commands.Claim, now_ms: int) -> None:
        """Give a producer to this connection: with a new epoch, or with the epoch that the client already has."""
        self._desk.topics.check_writer(session, command.topic)
        if command.epoch is not None:
            self._continue(session, command.topic, command.producer, command.epoch)
            return
        self._desk.topics.check_room()
        topic = self._desk.topics.find_or_make(command.topic)
        if command.only_free:
            topic.producers.claims.check_free(command.producer, session.number)
        epoch = topic.producers.claim(command.producer)
        self._hold(session, topic, command.producer)
        record = ClaimedRecord(topic.name, command.producer, epoch)
        self._desk.reply_when_settled(session, topic, record, _reply(topic, command.producer, epoch))

    def forget_session(self, session: Session) -> None:
        """Release the producers of a connection that has ended. Their epochs stay."""
        for name, producer in self._held.pop(session.number, ()):
            topic = self._desk.topics.by_name.get(name)
            if topic is not None:
                topic.producers.claims.release(producer, session.number)

    def _continue(self, session: Session, name: str, producer: str, epoch: int) -> None:
        topic = self._desk.topics.by_name.get(name)
        if topic is None:
            raise Refusal("fenced", f"there is no topic {name}, so no client has claimed {producer}; claim it again")
        topic.producers.claims.check(producer, epoch)
        self._hold(session, topic, producer)
        self._desk.reply_when_settled(session, topic, None, _reply(topic, producer, epoch))

    def _hold(self, session: Session, topic: Topic, producer: str) -> None:
        topic.producers.claims.hold(producer, Holder(session.number, session.name))
        self._held[session.number].add((topic.name, producer))


def _reply(topic: Topic, producer: str, epoch: int) -> str:
    return f"+OK claim {topic.name} {producer} {epoch}"
