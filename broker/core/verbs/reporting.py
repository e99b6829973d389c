"""Reporting: topics and figures, the state of events and subscriptions, connected clients, and chains of events."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from broker.core.desk import Desk
from broker.core.patterns import Patterns
from broker.core.session import Session
from broker.core.sessions import Sessions
from broker.core.steps import Interrupt, Steps
from broker.core.topic.subscription import Subscription
from broker.core.topic.topic import Topic
from broker.core.verbs import reports
from broker.core.verbs.chains import Chains
from broker.core.verbs.figures import Figures
from broker.core.verbs.finding import find_subscription
from broker.core.verbs.handler import Handlers
from broker.core.verbs.search import Search
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.verbs import reporting as commands

__all__ = ["Reporting"]

LOOKED_AT: Final = 500


class Reporting:
    """Begins a job for each report, since a report may be long."""

    def __init__(
        self, desk: Desk, sessions: Sessions, patterns: Patterns, handshakes: Callable[[], dict[str, int]]
    ) -> None:
        self.figures = Figures(desk, sessions, patterns, handshakes)
        self.chains = Chains()
        self._desk = desk
        self._sessions = sessions
        self.handlers: Handlers = {
            commands.Topics: self.topics,
            commands.Stats: self.stats,
            commands.Explain: self.explain,
            commands.Dead: self.dead,
            commands.Unsettled: self.unsettled,
            commands.Backlog: self.backlog,
            commands.Clients: self.clients,
            commands.Chain: self.chain,
        }

    def topics(self, session: Session, command: commands.Topics, now_ms: int) -> None:
        """Report all topics that the user may see."""
        figures = self.figures
        self._desk.begin_job(session, figures.topics(session.access), figures.topics_size, is_awaited=False)

    def stats(self, session: Session, command: commands.Stats, now_ms: int) -> None:
        """Report the figures of all topics, or of one."""
        figures = self.figures
        if command.topic is None:
            self._desk.begin_job(session, figures.stats(session.access, now_ms), figures.stats_size, is_awaited=False)
        else:
            topic = self._desk.topics.find(command.topic)
            self._desk.begin_job(session, figures.stats_of(session.access, now_ms, topic))

    def explain(self, session: Session, command: commands.Explain, now_ms: int) -> None:
        """Report the state of an event for a subscription."""
        topic = self._desk.topics.find(command.topic)
        subscription = find_subscription(session, topic, command.name)
        self._desk.begin_job(session, self._explanation(session, topic, subscription, command.ref, now_ms))

    def chain(self, session: Session, command: commands.Chain, now_ms: int) -> None:
        """Report the tree of events that caused each other."""
        self._desk.begin_job(session, self._tree(session, self._desk.topics.find(command.topic), command))

    def unsettled(self, session: Session, command: commands.Unsettled, now_ms: int) -> None:
        """Report which events wait or are in flight."""
        subscription = find_subscription(session, self._desk.topics.find(command.topic), command.name)

        def steps() -> Steps[bytes]:
            report = yield from reports.unsettled(subscription, command.start, command.limit)
            return _line(f"unsettled {command.topic}", report)

        self._desk.begin_job(session, steps())

    def backlog(self, session: Session, command: commands.Backlog, now_ms: int) -> None:
        """Report how many events of a subscription are not settled."""
        subscription = find_subscription(session, self._desk.topics.find(command.topic), command.name)

        def steps() -> Steps[bytes]:
            report = yield from reports.backlog(subscription)
            return _line(f"backlog {command.topic}", _shown(session, subscription, report))

        self._desk.begin_job(session, steps())

    def clients(self, session: Session, command: commands.Clients, now_ms: int) -> None:
        """Report the connected clients, the oldest connection first."""
        sessions = list(self._sessions)[: command.limit]

        def steps() -> Steps[bytes]:
            return b"+OK clients %b\n" % (yield from reports.clients(sessions))

        self._desk.begin_job(session, steps())

    def dead(self, session: Session, command: commands.Dead, now_ms: int) -> None:
        """Report which events died, and why."""

        def steps() -> Steps[bytes]:
            found = yield from reports.dead(self._subscriptions_of(session, command), command.limit)
            return b"+OK dead %b\n" % found

        self._desk.begin_job(session, steps())

    def _explanation(
        self, session: Session, topic: Topic, subscription: Subscription, ref: int | str, now_ms: int
    ) -> Steps[bytes]:
        if isinstance(ref, int):
            offset = ref
        else:
            in_flight = sorted(subscription.offsets_in_flight())
            search = Search(topic, ref, [*in_flight, *sorted(subscription.dead)])
            offset = yield search.run
        if offset >= topic.visible:
            raise Refusal("no_event", f"{topic.name} has the offsets {topic.log.earliest} to {topic.visible - 1}")
        explanation = yield from reports.explain(topic, subscription, offset, now_ms)
        return _line(f"explain {topic.name} @{offset}", _shown(session, subscription, explanation))

    def _tree(self, session: Session, topic: Topic, command: commands.Chain) -> Steps[bytes]:
        topics = list(self._desk.topics)
        seen: set[str] = set()
        for at in range(0, len(topics), LOOKED_AT):
            seen.update(one.name for one in topics[at : at + LOOKED_AT] if session.access.may_read(one.name))
            yield None

        def look_up(interrupt: Interrupt) -> bytes:
            tree = self.chains.trace(topics, seen, topic, command.ref, limit=command.limit, interrupt=interrupt)
            return _line(f"chain {topic.name}", tree)

        reply: bytes = yield look_up
        return reply

    def _subscriptions_of(self, session: Session, command: commands.Dead) -> Iterator[Subscription | None]:
        """Yield the subscriptions that the command names and whose errors the session may see.

        Also yields None regularly, so that other clients have their turn.
        """
        access, name = session.access, command.name
        looked_at = 0
        for topic in list(self._desk.topics):
            is_named = command.topic in {None, topic.name} and access.may_read(topic.name)
            for subscription in list(topic.subscriptions.values()) if is_named else ():
                if subscription.is_durable:
                    is_shown = name in {None, subscription.name} and access.may_use(subscription)
                else:
                    is_shown = session.is_attached_to(topic.name, subscription.name) or (
                        name is None and access.is_admin
                    )
                if is_shown:
                    yield subscription
                looked_at += 1
                if looked_at % LOOKED_AT == 0:
                    yield None
            looked_at += 1
            if looked_at % LOOKED_AT == 0:
                yield None


def _shown(session: Session, subscription: Subscription, report: dict[str, Any]) -> dict[str, Any]:
    """Return a report on a subscription, without clients, peers and errors if the user may not use the subscription."""
    return report if session.access.may_use(subscription) else reports.conceal(report)


def _line(head: str, report: Any) -> bytes:
    return b"+OK %b %b\n" % (head.encode(), msgspec.json.encode(report))
