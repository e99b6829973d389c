"""What the broker tells of itself: the answers to ``topics`` and ``stats``."""

from collections.abc import Iterable, Mapping
from typing import Any

from broker.core.subscription import Subscription
from broker.core.topic import Topic

__all__ = ["stats", "topics"]


def topics(all_topics: Iterable[Topic]) -> list[dict[str, Any]]:
    """Return what there is: each topic with its offsets (`next` is the one behind the last visible event) and bytes."""
    return [
        {
            "topic": topic.name,
            "earliest": topic.log.earliest,
            "next": topic.visible,
            "bytes": topic.log.size,
            "subscriptions": len(topic.subscriptions),
        }
        for topic in sorted(all_topics, key=lambda topic: topic.name)
    ]


def stats(all_topics: Iterable[Topic], connections: int, counts: Mapping[str, int]) -> dict[str, Any]:
    """Return every figure: counters since the start, and for each topic and subscription where it stands."""
    return {
        "connections": connections,
        **counts,
        "topics": {topic.name: _topic(topic) for topic in sorted(all_topics, key=lambda topic: topic.name)},
    }


def _topic(topic: Topic) -> dict[str, Any]:
    return {
        "earliest": topic.log.earliest,
        "next": topic.visible,
        "bytes": topic.log.size,
        "published": topic.published,
        "duplicates": topic.duplicates,
        "unconfirmed": topic.next - topic.visible,
        "subscriptions": {
            name: _subscription(subscription) for name, subscription in sorted(topic.subscriptions.items())
        },
    }


def _subscription(subscription: Subscription) -> dict[str, Any]:
    return {
        "durable": subscription.is_durable,
        "consumers": len(subscription.consumers),
        "pending": subscription.waiting,
        "in_flight": subscription.in_flight,
        "settled": subscription.settled,
        "redelivered": subscription.redelivered,
    }
