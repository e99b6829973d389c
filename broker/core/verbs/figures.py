"""Make the reports on all topics, ``topics`` and ``stats``, at most once a tick for all clients that have asked.

A run of a `_Table` makes the part of each topic. A client that asks during a run waits for the next run, so that a report is
never older than its command.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from broker.core.access import EVERYTHING, Access
from broker.core.desk import Desk
from broker.core.patterns import Pattern, Patterns
from broker.core.sessions import Sessions
from broker.core.steps import NEXT_TICK, Steps
from broker.core.topic.ordered_backlog import OrderedBacklog
from broker.core.topic.subscription import Subscription
from broker.core.topic.topic import Topic

__all__ = ["Figures"]

SUBSCRIPTIONS_A_SLICE: Final = 100
TOPIC_BYTES: Final = 400
"""The approximate size of a topic's part of a report."""

_encode = msgspec.json.encode


class _Round:
    """One run of a table: the part of each topic, and for each access the answer from the parts that it may see."""

    def __init__(self) -> None:
        self.parts: dict[str, bytes] = {}
        self.answers: dict[Access, bytes] = {}
        self.is_whole = False


class _Table:
    """A piece of JSON for each topic. Clients that ask at the same time share one table; the next group gets a new one."""

    def __init__(self, desk: Desk, part: Callable[[Topic], Steps[bytes]]) -> None:
        self.size = 0
        self._desk = desk
        self._part = part
        self._next = _Round()
        self._is_making = False
        self._made_at_tick = -1

    def answer(self, access: Access, put_together: Callable[[list[bytes], list[bytes]], bytes]) -> Steps[bytes]:
        """Return an answer of (topic names, parts) that `access` may see; clients with the same access share it."""
        wanted = self._next
        while not wanted.is_whole:
            if self._is_making or self._made_at_tick == self._desk.ticks:
                yield NEXT_TICK
            else:
                yield from self._make(wanted)
        if access not in wanted.answers:
            names = [name for name in wanted.parts if access is EVERYTHING or access.may_see(name)]
            wanted.answers[access] = put_together(
                [name.encode() for name in names], [wanted.parts[name] for name in names]
            )
            self.size = max(map(len, wanted.answers.values()))
        return wanted.answers[access]

    def _make(self, wanted: _Round) -> Steps[None]:
        self._next, self._is_making, self._made_at_tick = _Round(), True, self._desk.ticks
        try:
            # A run stops in the middle if its client leaves; the next client begins it again.
            wanted.parts = {}
            for topic in sorted(self._desk.topics, key=lambda topic: topic.name):
                wanted.parts[topic.name] = yield from self._part(topic)
                yield None
            wanted.is_whole = True
        finally:
            self._is_making = False


class Figures:
    """Makes the reports on all topics."""

    def __init__(
        self, desk: Desk, sessions: Sessions, patterns: Patterns, handshakes: Callable[[], dict[str, int]]
    ) -> None:
        self._patterns = patterns
        self._desk = desk
        self._sessions = sessions
        self._handshakes = handshakes
        self._stats = _Table(desk, _figures_part)
        self._topics = _Table(desk, _topic_part)

    @property
    def stats_size(self) -> int:
        """About how many bytes the answer to ``stats`` has."""
        return self._stats.size or TOPIC_BYTES * len(self._desk.topics.by_name)

    @property
    def topics_size(self) -> int:
        """About how many bytes the answer to ``topics`` has."""
        return self._topics.size or TOPIC_BYTES * len(self._desk.topics.by_name)

    def stats(self, access: Access, now_ms: int) -> Steps[bytes]:
        """Return the reply to ``stats``: counters since the start, and the figures of each topic and subscription."""
        return self._stats.answer(access, partial(self._with_counts, access, now_ms))

    def stats_of(self, access: Access, now_ms: int, topic: Topic) -> Steps[bytes]:
        """Return the reply to ``stats <topic>``, which has the form of ``stats``."""
        part = yield from _figures_part(topic)
        return self._with_counts(access, now_ms, [topic.name.encode()], [part])

    def topics(self, access: Access) -> Steps[bytes]:
        """Return the reply to ``topics``: the offsets, bytes and documentation of topics. `next` follows the last event."""
        return self._topics.answer(access, lambda _, parts: b"+OK topics [%b]\n" % b",".join(parts))

    def _with_counts(self, access: Access, now_ms: int, names: list[bytes], parts: list[bytes]) -> bytes:
        patterns = [_pattern(one) for one in self._patterns if access.may_use(one)]
        counts = {
            "identity": self._desk.identity,
            # The time by which events are dated, so that a client can tell how old an event is without a clock.
            "now_ms": self._desk.dates.of(now_ms),
            "connections": len(self._sessions),
            **self._desk.counts,
            "handshakes": self._handshakes(),
            "patterns": patterns,
        }
        topics = b",".join(b'"%b":%b' % pair for pair in zip(names, parts, strict=True))
        return b'+OK stats %b,"topics":{%b}}\n' % (_encode(counts)[:-1], topics)


def _pattern(pattern: Pattern) -> dict[str, Any]:
    return {
        "pattern": pattern.topic,
        "name": pattern.name,
        "durable": pattern.is_durable,
        "topics": len(pattern.topics),
        "consumers": len(pattern.shares),
        "in_flight": sum(share.held for share in pattern.shares.values()),
    }


def _topic_part(topic: Topic) -> Steps[bytes]:
    yield from ()
    return _encode(
        {
            "topic": topic.name,
            "log": topic.log.id,
            "earliest": topic.log.earliest,
            "next": topic.visible,
            "bytes": topic.log.size,
            "subscriptions": len(topic.subscriptions),
            **topic.documentation.report(),
        }
    )


def _figures_part(topic: Topic) -> Steps[bytes]:
    subscriptions: list[bytes] = []
    for number, (name, subscription) in enumerate(sorted(topic.subscriptions.items()), 1):
        subscriptions.append(b'"%b":%b' % (name.encode(), _encode(_subscription(subscription))))
        if number % SUBSCRIPTIONS_A_SLICE == 0:
            yield None
    figures: dict[str, Any] = {
        "log": topic.log.id,
        "earliest": topic.log.earliest,
        "next": topic.visible,
        "bytes": topic.log.size,
        "published": topic.published,
        "duplicates": topic.duplicates,
        "producers": len(topic.producers.stored),
        "unconfirmed": topic.next - topic.visible,
        "scheduled": len(topic.schedule),
    }
    if topic.confirmation.after:
        figures["confirm"] = {"after": topic.confirmation.after, "within_ms": topic.confirmation.within_ms}
    figures["marks"] = topic.marks.report(topic.log.earliest, topic.visible)
    return b'%b,"subscriptions":{%b}}' % (_encode(figures)[:-1], b",".join(subscriptions))


def _subscription(subscription: Subscription) -> dict[str, Any]:
    backlog = subscription.backlog
    return {
        "durable": subscription.is_durable,
        "paused": subscription.is_paused,
        "consumers": len(subscription.consumers),
        "pending": subscription.waiting,
        "delayed": backlog.delayed + subscription.schedule.count_from(subscription.start),
        "in_flight": subscription.in_flight,
        "parked": backlog.parked if isinstance(backlog, OrderedBacklog) else 0,
        "settled": subscription.settled,
        "redelivered": subscription.redelivered,
        "overtaken": subscription.overtaken,
        "expired": subscription.expired.count,
        "dead": len(subscription.dead) + len(subscription.dying),
        "policy": msgspec.structs.asdict(subscription.policy),
    }
