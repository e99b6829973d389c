"""Reports on one subscription, on clients and on dead events, made in steps, see `broker.core.steps`."""

from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import chain
from operator import itemgetter
from typing import Any, Final

import msgspec

from broker.core.session import Session
from broker.core.steps import Steps, sliced
from broker.core.topic import slots
from broker.core.topic.ordered_backlog import OrderedBacklog
from broker.core.topic.subscription import Consumer, Subscription
from broker.core.topic.topic import Topic
from broker.core.topic.whereabouts import lowest_open, oldest_open, place_of
from tweetwire.protocol.timing import times_of

__all__ = ["backlog", "clients", "conceal", "dead", "explain", "unsettled"]

DEAD_BYTES_MAX: Final = 16 << 20
DEAD_A_SLICE: Final = 50
LETTERS_A_SLICE: Final = 10_000
CLIENTS_A_SLICE: Final = 200

_encode = msgspec.json.encode

_CONCEALED: Final[Mapping[str, Any]] = {"client": None, "peer": None, "consumers": None, "owners": None, "errors": []}


def explain(topic: Topic, subscription: Subscription, offset: int, now_ms: int) -> Steps[dict[str, Any]]:
    """Return the state of an event for a subscription, and why it has not been delivered.

    `state` is one of settled, in_flight, waiting, delayed, expired, dead, before_start, behind_retention; the other fields
    depend on it.
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
    timing = yield from _timing(topic, subscription, offset, now_ms)
    found |= timing
    if "state" in timing:
        return found
    place, number = yield from place_of(subscription, offset, topic.log.priority_of(offset))
    if place == "waiting":
        return found | {"state": place, "behind": number, "because": _why_waiting(subscription, offset)}
    if place == "delayed":
        return found | {"state": place, "until": topic.dates.of(number), "for_ms": max(0, number - now_ms)}
    if place in {"dead", "dying"}:
        found["dead_letter"], place = number if place == "dead" else None, "dead"
    return found | {"state": place}


def _timing(topic: Topic, subscription: Subscription, offset: int, now_ms: int) -> Steps[dict[str, Any]]:
    """Return when an event expires, and its state if that follows from its times.

    The dictionary is empty for other events.
    """
    schedule, date_ms = topic.schedule, topic.dates.of(now_ms)
    due_ms = schedule.due_of(offset)
    if due_ms is not None and offset >= subscription.start:
        if due_ms > date_ms:
            return {"state": "delayed", "until": due_ms, "for_ms": due_ms - date_ms, "because": "it is not due"}
        before = subscription.backlog.returned
        for count in schedule.counts_before(due_ms):
            before += count
            yield None
        return {"state": "waiting", "behind": before, "because": _why_waiting(subscription, offset)}
    if offset not in schedule.expiring:
        return {}
    lines = yield lambda _: topic.read_lines([offset])
    expires_ms = times_of(lines[0][1])[1] if lines else None
    if expires_ms is None:
        return {}
    waits = offset in (yield from lowest_open(subscription, offset, 1))
    is_expired = offset in subscription.expired or (waits and expires_ms <= date_ms)
    return {"expires": expires_ms, **({"state": "expired"} if is_expired else {})}


def unsettled(subscription: Subscription, start: int, limit: int) -> Steps[dict[str, Any]]:
    """Return the lowest `limit` offsets from `start` on that wait or are in flight, as runs [first, last].

    `next` is the offset from which to ask for more, None if these were all.
    """
    offsets = yield from lowest_open(subscription, start, limit + 1)
    after = offsets[limit] if len(offsets) > limit else None
    return {"offsets": list(slots.runs(offsets[:limit])), "next": after}


def backlog(subscription: Subscription) -> Steps[dict[str, Any]]:
    """Return how many events of a subscription wait, by priority, and how many each consumer has."""
    by_priority = yield from subscription.backlog.by_priority()
    oldest = yield from oldest_open(subscription)
    consumers = yield from sliced(list(subscription.consumers), lambda some: [_consumer(one) for one in some])
    return {
        "by_priority": {str(priority): count for priority, count in by_priority.items()},
        "oldest": oldest,
        **({"paused": True} if subscription.is_paused else {}),
        **({"owners": subscription.owners} if subscription.owners else {}),
        "consumers": list(chain.from_iterable(consumers)),
    }


def _consumer(consumer: Consumer) -> dict[str, Any]:
    return {
        "client": consumer.session.name,
        "peer": consumer.session.peer,
        "in_flight": len(consumer.in_flight),
        "prefetch": consumer.prefetch,
    }


def clients(sessions: Sequence[Session]) -> Steps[bytes]:
    """Return the clients of `sessions` as JSON, with the topics and subscriptions that each consumes."""
    parts = yield from sliced(sessions, lambda some: b",".join(_encode(_client(one)) for one in some), CLIENTS_A_SLICE)
    return b"[%b]" % b",".join(parts)


def _client(session: Session) -> dict[str, Any]:
    return {
        "client": session.name,
        "peer": session.peer,
        "subscriptions": sorted([*session.consumers, *session.shares]),
        "in_flight": sum(len(consumer.in_flight) for consumer in session.consumers.values())
        + sum(share.held for share in session.shares.values()),
    }


def _why_waiting(subscription: Subscription, offset: int) -> str:
    """Return why a waiting event is not delivered at once."""
    if subscription.is_paused:
        return f"the subscription is paused; to continue: resume {subscription.topic} as={subscription.name}"
    if isinstance(subscription.backlog, OrderedBacklog) and (reason := _why_ordered(subscription.backlog, offset)):
        return reason
    if not subscription.consumers:
        return "no connection has this subscription"
    if all(consumer.is_full for consumer in subscription.consumers):
        return "every consumer has as many in flight as its prefetch allows"
    is_slow = all(consumer.room <= 0 for consumer in subscription.consumers)
    return "every consumer reads too slowly" if is_slow else "it is next in its order"


def _why_ordered(backlog: OrderedBacklog, offset: int) -> str:
    """Return why an event waits for others, "" if it does not."""
    if backlog.strangers:
        return "events that were in flight when the subscription became ordered must be settled first"
    blocker = backlog.blocker(offset)
    if blocker is None:
        return ""
    return f"it waits for @{blocker.offset} of the same key, which {'is in flight' if blocker.is_in_flight else 'waits too'}"


def conceal(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report on a subscription with its figures, and without clients, peers, owners and errors."""
    return {name: _CONCEALED.get(name, value) for name, value in report.items()}


def dead(subscriptions: Iterable[Subscription | None], limit: int) -> Steps[bytes]:
    """Return as JSON the newest `limit` dead events, or fewer, of about `DEAD_BYTES_MAX` bytes. The newest is the first.

    At each None in `subscriptions`, other clients have their turn.
    """
    newest: list[tuple[int, int, Subscription]] = []
    for subscription in subscriptions:
        if subscription is None:
            yield None
            continue
        # Dead letters are stored in the order of the deaths.
        letters = [(letter, offset, subscription) for offset, (_, letter) in subscription.dead.items()]
        for at in range(0, len(letters), LETTERS_A_SLICE):
            newest = nlargest(limit, chain(newest, letters[at : at + LETTERS_A_SLICE]), key=itemgetter(0))
            yield None
    found: list[bytes] = []
    left = DEAD_BYTES_MAX
    for _, offset, subscription in newest:
        # The event may have been redriven while other clients had their turn.
        if offset in subscription.dead:
            found.append(_encode(_dead_event(subscription, offset)))
            left -= len(found[-1])
        if left <= 0:
            break
        if len(found) % DEAD_A_SLICE == 0:
            yield None
    return b"[%b]" % b",".join(found)


def _dead_event(subscription: Subscription, offset: int) -> dict[str, Any]:
    priority, letter = subscription.dead[offset]
    attempts = subscription.attempts.get(offset)
    return {
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
