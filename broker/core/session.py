"""The core's part of a connection: its name, its subscriptions, and the output for it."""

from typing import NamedTuple

from broker.core.access import EVERYTHING, Access
from broker.core.gaps import SessionGaps
from broker.core.outbox import Outbox
from broker.core.places import Wait
from broker.core.topic.share import Share
from broker.core.topic.subscription import Consumer

__all__ = ["Session", "StateCopy"]


class StateCopy(NamedTuple):
    """A copy of the durable state: its records as lines of JSON, and the topics that the session may not read."""

    lines: str
    left_out: list[str]


class Session:
    """One connection, from its greeting to its end."""

    __slots__ = (
        *("access", "consumers", "gaps", "is_leaving", "is_named", "is_quiet", "jobs", "name", "number", "outbox"),
        *("parked", "peer", "shares", "state_copy"),
    )

    def __init__(self, number: int, peer: str, access: Access = EVERYTHING) -> None:
        self.number = number
        self.peer = peer
        self.name = f"conn-{number}"
        self.is_quiet = False
        self.is_leaving = False
        self.outbox = Outbox()
        # None until an event is refused, which most connections never see
        self.gaps: SessionGaps | None = None
        # The session's consumers, by topic and name of the subscription
        self.consumers: dict[tuple[str, str], Consumer] = {}
        # Its parts of pattern subscriptions, by pattern and name. They have the consumers of the topics that match.
        self.shares: dict[tuple[str, str], Share[Consumer]] = {}
        self.is_named = False
        self.access = access
        # How many jobs must be done before the next command is carried out
        self.jobs = 0
        # The wait for marks that the next reply waits for
        self.parked: Wait | None = None
        # A copy of the state, while the client asks for its parts
        self.state_copy: StateCopy | None = None

    def note_gaps(self) -> SessionGaps:
        """Return this connection's refused sequences to add to, creating the object on first use."""
        if self.gaps is None:
            self.gaps = SessionGaps()
        return self.gaps

    def take_output(self) -> bytes:
        """Remove and return all output that may be sent now. Call `Broker.sent` when it has been sent."""
        for consumer in self.consumers.values():
            consumer.depart()
        for share in self.shares.values():
            for consumer in share.depart():
                consumer.depart()
        return self.outbox.take_ready()

    @property
    def own_name(self) -> str:
        """The name of the connection's anonymous subscriptions."""
        return f"conn-{self.number}"

    @property
    def attached(self) -> list[tuple[str, str, int]]:
        """The durable subscriptions that the session is attached to: (topic or pattern, subscription, prefetch)."""
        alone = [
            (topic, name, consumer.prefetch)
            for (topic, name), consumer in self.consumers.items()
            if consumer.subscription.is_durable
        ]
        return alone + [(*share.key, share.prefetch) for share in self.shares.values() if share.is_durable]

    def is_attached_to(self, topic: str, name: str) -> bool:
        """Whether the session is attached to a subscription."""
        return self.consumer_of(topic, name) is not None

    def consumer_of(self, topic: str, name: str) -> Consumer | None:
        """Return the session's consumer of a subscription, None if it has none."""
        found = self.consumers.get((topic, name))
        if found is None and self.shares:
            members = (share.members.get(topic) for (_, one), share in self.shares.items() if one == name)
            found = next((consumer for consumer in members if consumer is not None), None)
        return found

    def consumers_of(self, topic: str) -> list[Consumer]:
        """Return the session's consumers on a topic, those of patterns after the others."""
        found = [consumer for (name, _), consumer in self.consumers.items() if name == topic]
        if self.shares:
            found += [share.members[topic] for share in self.shares.values() if topic in share.members]
        return found

    def remove_consumer(self, consumer: Consumer) -> None:
        """Forget a consumer that is detached."""
        subscription = consumer.subscription
        if consumer.share is None:
            del self.consumers[subscription.topic, subscription.name]
        else:
            del consumer.share.members[subscription.topic]
