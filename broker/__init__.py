"""A durable, prioritised message broker whose protocol a person can type, and its clients."""

from broker.client import Client, Publisher, Subscription
from broker.errors import BrokerError, BrokerLost, BrokerUnreachable, HandshakeFailed, Refusal, TlsFailed
from broker.events import Event, StoredEvent
from broker.protocol.replies import Page, ProducerPosition, Receipt, TopicInfo
from broker.sync_client import SyncClient, SyncSubscription

__all__ = [
    "BrokerError",
    "BrokerLost",
    "BrokerUnreachable",
    "Client",
    "Event",
    "HandshakeFailed",
    "Page",
    "ProducerPosition",
    "Publisher",
    "Receipt",
    "Refusal",
    "StoredEvent",
    "Subscription",
    "SyncClient",
    "SyncSubscription",
    "TlsFailed",
    "TopicInfo",
]
