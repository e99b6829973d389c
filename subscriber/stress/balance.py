"""Read a subscription's balance from the broker's ``stats``."""

from collections.abc import Mapping
from typing import Any

from subscriber.stress.ledger import Balance
from tweetwire.protocol.errors import StartError

__all__ = ["balance_of"]


def balance_of(stats: Mapping[str, Any], topic: str, subscription: str) -> Balance:
    """Return the balance of one subscription. Raises StartError if the broker does not know the subscription."""
    of_topic = stats["topics"].get(topic, {})
    of_subscription = of_topic.get("subscriptions", {}).get(subscription)
    if of_subscription is None:
        raise StartError(
            f"the broker no longer knows the subscription {subscription} of {topic}; another client ended it"
        )
    unsettled = of_subscription["pending"] + of_subscription["in_flight"]
    return Balance(of_topic["next"], unsettled, of_subscription["dead"])
