"""The message broker: the server. Clients are in `tweetwire`."""

import warnings
from typing import Any

_MOVED = frozenset(
    {
        *(
            "BrokerError",
            "BrokerLost",
            "BrokerUnreachable",
            "Client",
            "ClientClosed",
            "Event",
            "HandshakeFailed",
            "Page",
        ),
        *("ProducerPosition", "ProtocolError", "Publisher", "Receipt", "Refusal", "StoredEvent", "Subscription"),
        *("SubscriptionEnded", "SyncClient", "SyncSubscription", "TlsFailed", "TopicInfo"),
    }
)


def __getattr__(name: str) -> Any:
    """Return a name that has moved to `tweetwire`, and warn. The old name works for one release."""
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import tweetwire  # noqa: PLC0415 — imported only if an old program asks for it

    # Python always shows a FutureWarning. It shows a DeprecationWarning only in __main__ and in tests.
    warnings.warn(f"broker.{name} has moved; write: from tweetwire import {name}", FutureWarning, stacklevel=2)
    return getattr(tweetwire, name)
