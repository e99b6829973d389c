"""A durable, prioritised message broker whose protocol a person can type, and its clients."""

from broker.errors import BrokerError, BrokerLost, BrokerUnreachable, Refusal
from broker.events import Event, StoredEvent

__all__ = [
    "BrokerError",
    "BrokerLost",
    "BrokerUnreachable",
    "Event",
    "Refusal",
    "StoredEvent",
]
