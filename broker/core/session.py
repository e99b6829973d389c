"""A connection as the core sees it: its name, what it subscribes to, and what goes back to it."""

from broker.core.access import EVERYTHING, Access
from broker.core.consumer import Consumer
from broker.core.outbox import Outbox

__all__ = ["Session"]


class Session:
    """One connection, from its greeting to its end."""

    __slots__ = ("access", "consumers", "is_leaving", "is_named", "is_quiet", "name", "number", "outbox", "peer")

    def __init__(self, number: int, peer: str, access: Access = EVERYTHING) -> None:
        self.number = number
        self.peer = peer
        self.name = f"conn-{number}"
        self.is_quiet = False
        self.is_leaving = False
        self.outbox = Outbox()
        self.consumers: dict[tuple[str, str], Consumer] = {}
        self.is_named = False
        self.access = access

    def take_output(self) -> bytes:
        """Return everything that may be sent now; `Broker.sent` follows when it has left."""
        for consumer in self.consumers.values():
            consumer.depart()
        return self.outbox.take()

    @property
    def attached(self) -> list[tuple[str, str, int]]:
        """The durable subscriptions that it is attached to: (topic, subscription, prefetch)."""
        return [
            (topic, name, consumer.prefetch)
            for (topic, name), consumer in self.consumers.items()
            if consumer.subscription.is_durable
        ]

    def consumers_of(self, topic: str) -> list[Consumer]:
        """Return what this connection has on `topic`, in the order it subscribed."""
        return [consumer for (name, _), consumer in self.consumers.items() if name == topic]
