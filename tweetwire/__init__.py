"""The clients of a durable message broker with priorities, whose line protocol a person can type."""

from typing import TYPE_CHECKING, Final

from tweetwire.lazy_names import lazy_names

if TYPE_CHECKING:
    from tweetwire.client.aio import Client, Publisher, Subscription
    from tweetwire.client.blocking import SyncClient, SyncSubscription
    from tweetwire.protocol.errors import (
        BrokerError,
        BrokerLost,
        BrokerUnreachable,
        ClientClosed,
        HandshakeFailed,
        NoReply,
        ProtocolError,
        Refusal,
        SubscriptionEnded,
        TlsFailed,
    )
    from tweetwire.protocol.events import Event, StoredEvent
    from tweetwire.protocol.mark_replies import MarkInfo, PromiseNotKept
    from tweetwire.protocol.replies import Page, ProducerPosition, Receipt, TopicInfo

__all__ = [
    "BrokerError",
    "BrokerLost",
    "BrokerUnreachable",
    "Client",
    "ClientClosed",
    "Event",
    "HandshakeFailed",
    "MarkInfo",
    "NoReply",
    "Page",
    "ProducerPosition",
    "PromiseNotKept",
    "ProtocolError",
    "Publisher",
    "Receipt",
    "Refusal",
    "StoredEvent",
    "Subscription",
    "SubscriptionEnded",
    "SyncClient",
    "SyncSubscription",
    "TlsFailed",
    "TopicInfo",
]

_MODULES: Final = {
    "tweetwire.client.aio": ("Client", "Publisher", "Subscription"),
    "tweetwire.client.blocking": ("SyncClient", "SyncSubscription"),
    "tweetwire.protocol.events": ("Event", "StoredEvent"),
    "tweetwire.protocol.mark_replies": ("MarkInfo", "PromiseNotKept"),
    "tweetwire.protocol.replies": ("Page", "ProducerPosition", "Receipt", "TopicInfo"),
}
_ERRORS: Final = dict.fromkeys(__all__, "tweetwire.protocol.errors")

__getattr__ = lazy_names(__name__, _ERRORS | {name: module for module, names in _MODULES.items() for name in names})
