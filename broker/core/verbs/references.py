"""Find the events in flight that a command names by offset or by id. The ids of many events are read from the log first."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from broker.core.desk import Desk
from broker.core.session import Session
from broker.core.steps import Outcome, Steps
from broker.core.topic.in_flight_ids import InFlightIds
from broker.core.topic.subscription import Consumer
from broker.core.verbs.search import find_ids
from tweetwire.protocol.errors import Refusal

__all__ = ["References", "consumers_on", "stale"]

LEARNT_AT_ONCE: Final = 1000
"""If a consumer has more events in flight, a thread reads their ids."""


class References:
    """Finds events in flight for all commands that name them."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def in_flight(self, consumer: Consumer, ref: int | str) -> int | None:
        """Return the offset of the event that `ref` names, None if the consumer has no such event in flight."""
        if isinstance(ref, int):
            return ref if ref in consumer.in_flight else None
        if consumer.ids is None:
            consumer.ids = InFlightIds(consumer.in_flight)
            topic = self._desk.topics.by_name[consumer.subscription.topic]
            found = topic.read_lines(list(consumer.in_flight))
            consumer.ids.note_lines([offset for offset, _ in found], [line for _, line in found])
        return consumer.ids.oldest_with(ref)

    def meant(self, consumers: list[Consumer], refs: Iterable[int | str]) -> Iterator[tuple[Consumer, int]]:
        """Yield (consumer, offset) for each event in flight that `refs` name. Of several consumers, the first is taken."""
        for ref in refs:
            for consumer in consumers:
                offset = self.in_flight(consumer, ref)
                if offset is not None:
                    yield consumer, offset
                    break

    def is_learning(
        self, session: Session, topic: str, refs: Iterable[int | str], carry_out: Callable[[], None]
    ) -> bool:
        """Begin a job that reads ids and then calls `carry_out`, if `refs` has ids and there are too many events to read now.

        Returns False if no job is needed, so that the command is carried out now.
        """
        if not any(isinstance(ref, str) for ref in refs):
            return False
        consumers = [
            one for one in session.consumers_of(topic) if one.ids is None and len(one.in_flight) > LEARNT_AT_ONCE
        ]
        if consumers:
            self._desk.begin_job(session, self._learn(consumers, carry_out))
        return bool(consumers)

    def _learn(self, consumers: list[Consumer], carry_out: Callable[[], None]) -> Steps[Outcome]:
        """Read the ids of all events that `consumers` have in flight, and then carry out a command that names ids."""
        for consumer in consumers:
            topic, offsets = self._desk.topics.by_name.get(consumer.subscription.topic), sorted(consumer.in_flight)
            if topic is None:
                # The topic was dropped meanwhile.
                continue
            # From now on, the ids of delivered events are noted as well.
            consumer.ids = learning = InFlightIds(consumer.in_flight)
            is_learnt = False
            try:
                ids = yield lambda interrupt: list(find_ids(topic, offsets, None, interrupt))  # noqa: B023
                learning.note_ids(ids)
                is_learnt = True
            finally:
                # If the log cannot be read, the job is closed here. The next command then reads the ids again.
                if not is_learnt:
                    consumer.ids = None
        return carry_out


def consumers_on(session: Session, topic: str) -> list[Consumer]:
    """Return a session's consumers on a topic. Raises Refusal ``not_subscribed`` if it has none."""
    consumers = session.consumers_of(topic)
    if not consumers:
        raise Refusal("not_subscribed", f"this connection has no subscription to {topic}")
    return consumers


def stale() -> Refusal:
    """Return the refusal of a command none of whose events is in flight."""
    return Refusal("stale", "none of these events is in flight on this connection")
