"""Reads from the broker's ``stats`` how a subscription stands."""

from collections.abc import Mapping
from typing import Any

from broker.errors import StartError
from subscriber.ledger import Balance

__all__ = ["balance_of"]


def balance_of(stats: Mapping[str, Any], topic: str, subscription: str) -> Balance:
    """Return the balance of one subscription. Raises StartError where the broker does not know it (any more)."""
    of_topic = stats["topics"].get(topic, {})
    of_subscription = of_topic.get("subscriptions", {}).get(subscription)
    if of_subscription is None:
        raise StartError(f"the broker no longer knows the subscription {subscription} of {topic}; somebody ended it")
    unsettled = of_subscription["pending"] + of_subscription["in_flight"]
    return Balance(of_topic["next"], unsettled, of_subscription["dead"])
