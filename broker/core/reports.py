"""What the broker tells of itself: the answers to ``topics``, ``stats``, ``explain`` and ``dead``."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from broker.core import slots
from broker.core.session import Session
from broker.core.subscription import Subscription
from broker.core.topic import Topic

__all__ = ["stats", "topics"]


def topics(all_topics: Iterable[Topic]) -> list[dict[str, Any]]:
    """Return what there is: each topic's offsets (`next` is the one behind the last visible event), bytes and documents."""
    return [
        {
            "topic": topic.name,
            "earliest": topic.log.earliest,
            "next": topic.visible,
            "bytes": topic.log.size,
            "subscriptions": len(topic.subscriptions),
            **topic.documentation.report(),
        }
        for topic in sorted(all_topics, key=lambda topic: topic.name)
    ]


def stats(
    all_topics: Iterable[Topic], connections: int, counts: Mapping[str, int], handshakes: Mapping[str, int]
) -> dict[str, Any]:
    """Return every figure: counters since the start, and for each topic and subscription where it stands."""
    return {
        "connections": connections,
        **counts,
        "handshakes": dict(handshakes),
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
        "delayed": subscription.delayed,
        "in_flight": subscription.in_flight,
        "settled": subscription.settled,
        "redelivered": subscription.redelivered,
        "overtaken": subscription.overtaken,
        "dead": len(subscription.dead) + len(subscription.dying),
        "policy": msgspec.structs.asdict(subscription.policy),
    }


def explain(topic: Topic, subscription: Subscription, offset: int, now_ms: int) -> dict[str, Any]:
    """Return where an event stands for a subscription, and why it has not been delivered.

    `state` is one of settled, in_flight, waiting, delayed, dead, before_start, behind_retention; the others depend on it.
    """
    attempts = subscription.attempts.get(offset)
    found: dict[str, Any] = {
        "topic": topic.name,
        "offset": offset,
        "subscription": subscription.name,
        "failed_tries": attempts.count if attempts else 0,
        "tries": subscription.policy.tries,
        "errors": list(attempts.errors) if attempts else [],
    }
    for consumer in subscription.consumers:
        if offset in consumer.in_flight:
            return found | {"state": "in_flight", "client": consumer.session.name, "peer": consumer.session.peer}
    if offset < topic.log.earliest:
        return found | {
            "state": "behind_retention",
            "earliest": topic.log.earliest,
            "overtaken": subscription.overtaken,
        }
    place, number = subscription.place_of(offset, topic.log.priority_of(offset))
    if place == "waiting":
        return found | {"state": place, "behind": number, "because": _why_waiting(subscription)}
    if place == "delayed":
        return found | {"state": place, "until": number, "for_ms": max(0, number - now_ms)}
    if place in {"dead", "dying"}:
        return found | {"state": "dead", "dead_letter": number if place == "dead" else None}
    return found | {"state": place}


def unsettled(subscription: Subscription, start: int, limit: int) -> dict[str, Any]:
    """Return the lowest `limit` offsets from `start` on that wait or are in flight, as runs [first, last].

    `next` is the offset to ask on from, None where these were all.
    """
    offsets = subscription.unsettled(start, limit + 1)
    after = offsets[limit] if len(offsets) > limit else None
    return {"offsets": list(slots.runs(offsets[:limit])), "next": after}


def backlog(subscription: Subscription) -> dict[str, Any]:
    """Return what a subscription still has before it, and with whom the rest is; to be asked for by one who looks at it."""
    return {
        "by_priority": {str(priority): count for priority, count in subscription.waiting_by_priority().items()},
        "oldest": subscription.oldest(),
        "consumers": [
            {
                "client": consumer.session.name,
                "peer": consumer.session.peer,
                "in_flight": len(consumer.in_flight),
                "prefetch": consumer.prefetch,
            }
            for consumer in subscription.consumers
        ],
    }


def clients(sessions: Iterable[Session], limit: int) -> list[dict[str, Any]]:
    """Return who is connected, the first `limit` to have come, with the topics and subscriptions that each consumes."""
    return [
        {
            "client": session.name,
            "peer": session.peer,
            "subscriptions": sorted(session.consumers),
            "in_flight": sum(len(consumer.in_flight) for consumer in session.consumers.values()),
        }
        for session in islice(sessions, limit)
    ]


def _why_waiting(subscription: Subscription) -> str:
    """Say what keeps a waiting event from being delivered at once."""
    if not subscription.consumers:
        return "no connection has this subscription"
    if all(consumer.held >= consumer.prefetch for consumer in subscription.consumers):
        return "every consumer has as many in flight as its prefetch allows"
    if all(consumer.room <= 0 for consumer in subscription.consumers):
        return "every consumer reads too slowly"
    return "it is next in its order"


def dead(all_topics: Iterable[Topic], topic: str | None, name: str | None, limit: int) -> list[dict[str, Any]]:
    """Return up to `limit` dead events, of one topic or one subscription if named: where each is and why it died."""
    found: list[dict[str, Any]] = []
    for subscription in (
        subscription
        for one in all_topics
        if topic in {None, one.name}
        for subscription in one.subscriptions.values()
        if name in {None, subscription.name}
    ):
        for offset, (priority, letter) in sorted(subscription.dead.items()):
            if len(found) == limit:
                return found
            attempts = subscription.attempts.get(offset)
            found.append(
                {
                    "topic": subscription.topic,
                    "offset": offset,
                    "priority": priority,
                    "subscription": subscription.name,
                    "dead_letter": letter,
                    "tries": attempts.count if attempts else 0,
                    "first_at": attempts.first_at if attempts else None,
                    "last_at": attempts.errors[-1].at if attempts else None,
                    "errors": list(attempts.errors) if attempts else [],
                }
            )
    return found
