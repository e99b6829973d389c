"""A named reader of one topic, and the consumers that share it.

Always true: each visible event from the subscription's start on is in exactly one of these places:

- waiting: not taken from its lane yet, returned, or in a pause (`Backlog`),
- in flight with one consumer,
- dying: its dead letter is on its way to the disk,
- dead,
- settled.

A consumer is one connection's share of a subscription. The two classes need each other, so they are in one module.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Protocol

from broker.core.outbox import Outbox
from broker.core.topic.deadlines import Deadlines
from broker.core.topic.expired import Expired
from broker.core.topic.in_flight_ids import InFlightIds
from broker.core.topic.lanes import Lanes
from broker.core.topic.ordered_backlog import backlog_of, continued
from broker.core.topic.promise import Promise
from broker.core.topic.share import Share
from broker.core.topic.suspects import Suspects
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.failures import Attempts
from tweetwire.protocol.policy import DEFAULT_POLICY, Policy

__all__ = ["Consumer", "Recipient", "Subscription"]


class Recipient(Protocol):
    """The session of a consumer, as far as a subscription needs to know it."""

    number: int
    name: str
    peer: str
    outbox: Outbox
    consumers: "dict[tuple[str, str], Consumer]"


class Subscription:
    """A subscription's backlog, its failed and dead events, and the consumers that share it."""

    __slots__ = (
        *("_turn", "attempts", "backlog", "consumers", "dead", "dying", "is_durable", "is_paused", "name", "overtaken"),
        *("expired", "owners", "policy", "redelivered", "schedule", "served", "settled", "start", "suspects"),
        "topic",
    )

    def __init__(
        self, topic: str, name: str, lanes: Lanes, start: int, *, is_durable: bool, policy: Policy | None = None
    ) -> None:
        self.topic = topic
        self.name = name
        self.start = start
        self.is_durable = is_durable
        self.policy = policy or DEFAULT_POLICY
        # The users that may use and end it. Empty if it was made without users, or by an older version.
        self.owners: tuple[str, ...] = ()
        self.backlog = backlog_of(self.policy, lanes, start)
        self.consumers: list[Consumer] = []
        self.is_paused = False
        # The consumers that get events: all consumers, or none during a pause
        self.served: Sequence[Consumer] = self.consumers
        self.attempts: dict[int, Attempts] = {}
        self.suspects = Suspects()
        # By offset: (priority, offset of the dead letter). The letter of a dying event is not stored yet.
        self.dying: dict[int, tuple[int, int]] = {}
        self.dead: dict[int, tuple[int, int]] = {}
        self.settled = 0
        self.redelivered = 0
        self.overtaken = 0
        self.schedule, self.expired = lanes.schedule, Expired()
        self._turn = 0

    @property
    def waiting(self) -> int:
        """How many events no consumer has, including those in a pause and those that are not due."""
        return self.backlog.size

    @property
    def in_flight(self) -> int:
        """How many events are with consumers."""
        return sum(len(consumer.in_flight) for consumer in self.consumers)

    def offsets_in_flight(self) -> Iterator[int]:
        """Yield the offsets that consumers have."""
        return chain.from_iterable(consumer.in_flight for consumer in self.consumers)

    def change_policy(self, policy: Policy, lanes: Lanes) -> None:
        """Replace the policy. `lanes` are those of the topic."""
        self.policy = policy
        self.backlog = continued(self.backlog, policy, lanes, self.start, self.offsets_in_flight())

    def next_consumers(self) -> "Iterator[Consumer]":
        """Yield each served consumer once, beginning with another one each time, so that a few events are shared fairly."""
        consumers = self.served
        count = len(consumers)
        if count > 1:
            self._turn = (self._turn + 1) % count
            consumers = [*consumers[self._turn :], *consumers[: self._turn]]
        return iter(consumers)

    def put_last(self, consumer: "Consumer") -> None:
        """Move a consumer to the end of the order in which consumers are served."""
        self.consumers.remove(consumer)
        self.consumers.append(consumer)
        self._turn = -1

    def pause(self, *, is_paused: bool) -> None:
        """Begin or end a pause."""
        self.is_paused = is_paused
        self.served = () if is_paused else self.consumers

    def take_over(self, before: "Subscription") -> None:
        """Copy owners, pause and counters of the subscription with the same name that this one replaces."""
        self.owners, self.expired = before.owners, before.expired
        self.settled, self.redelivered, self.overtaken = before.settled, before.redelivered, before.overtaken
        self.pause(is_paused=before.is_paused)

    def discard_dead(self, offsets: Sequence[int]) -> dict[int, list[int]]:
        """Settle those of `offsets` that are dead, and return them by priority."""
        settled: dict[int, list[int]] = {}
        for offset in offsets:
            if offset in self.dead:
                priority, _ = self.dead.pop(offset)
                self.attempts.pop(offset, None)
                settled.setdefault(priority, []).append(offset)
                self.settled += 1
        return settled

    def redrive(self, offset: int) -> None:
        """Let a dead event wait again. Its errors are kept; its strikes are not."""
        priority, _ = self.dead.pop(offset)
        if offset in self.attempts:
            self.attempts[offset] = self.attempts[offset].forgiven()
        self.backlog.reopen([offset], priority)

    def overtake(self, earliest: int) -> int:
        """Skip waiting and dead events below offset `earliest`, which the log lost. Return how many. Those in flight stay."""
        dead = {offset: where for offset, where in self.dead.items() if offset >= earliest}
        passed = self.backlog.pass_over(earliest, self.start) + len(self.dead) - len(dead)
        self.dead = dead
        held = {*self.offsets_in_flight(), *self.dying}
        self.attempts = {at: tries for at, tries in self.attempts.items() if at >= earliest or at in held}
        self.suspects.clear_below(earliest)
        self.overtaken += passed
        return passed

    def lowest_unsettled(self, visible: int) -> int:
        """Return the lowest offset that is not settled, `visible` if all are settled. Dead events do not count as settled."""
        apart = (offset for _, offset, _ in self.backlog.apart())
        waiting = (*self.backlog.heads().values(), *apart, *self.schedule.lowest(self.start, 1))
        return min((visible, *waiting, *self.offsets_in_flight(), *self.dying, *self.dead))


class Consumer:
    """One connection's share of a subscription: the events that it has in flight, and how many more it may have.

    Always true: every offset in `in_flight` ({offset: slot}) was taken by this consumer and is not settled.
    """

    __slots__ = (
        *("_departing", "_taken", "_unsent", "deadlines", "fetching", "heard_ms", "ids", "in_flight", "is_watched"),
        *("prefetch", "promise", "session", "share", "subscription"),
    )

    def __init__(
        self, session: Recipient, subscription: Subscription, prefetch: int, share: "Share[Consumer] | None" = None
    ) -> None:
        self.session = session
        # The prefetch of a pattern subscription; None for a consumer that was attached only to this topic
        self.share = share
        self.subscription = subscription
        self.prefetch = prefetch
        self.in_flight: dict[int, int] = {}
        # Whether lines are being read from the log for this consumer
        self.fetching = False
        self.deadlines = Deadlines()
        # The time (ms) of the client's last command about its events, or of the first delivery if there was none since
        self.heard_ms = 0
        self.is_watched = False
        # The next three are None for nearly all consumers. This one has the begun events, if the client promises to ``begin``
        # them.
        self.promise: Promise | None = None
        # The ids of the events in flight. It is made at the first command that names an id.
        self.ids: InFlightIds | None = None
        # Offsets that the client has taken with ``pubrec`` and not finished; they count towards the prefetch.
        self._taken: set[int] | None = None
        self._unsent: list[int] = []
        self._departing: list[int] = []

    @property
    def room(self) -> int:
        """How many more events may be in flight here now."""
        if self.fetching or not self.session.outbox.has_room:
            return 0
        return self.prefetch - self.held if self.share is None else min(self.prefetch - self.held, self.share.room)

    @property
    def is_full(self) -> bool:
        """Whether as many events are in flight as the prefetch allows."""
        return self.held >= self.prefetch or (self.share is not None and self.share.room <= 0)

    @property
    def held(self) -> int:
        """How many events count towards the prefetch."""
        return len(self.in_flight) + len(self._taken or ())

    def note_taken(self, offset: int) -> None:
        """Count an event that the client has taken by ``pubrec`` towards the prefetch, until `note_finished`."""
        if self._taken is None:
            self._taken = set()
        self._taken.add(offset)

    def note_finished(self, offset: int) -> bool:
        """Note that the client has finished an event that it took. Return whether that makes room for another event."""
        if self._taken is None or offset not in self._taken:
            return False
        self._taken.remove(offset)
        return True

    def promise_begin(self) -> None:
        """Note that the client promises to ``begin`` each event from now on. Raises Refusal if it has events in flight."""
        if self.promise is not None:
            return
        if self.in_flight:
            raise Refusal("bad_arguments", "begins comes too late for the events in flight here; unsub first")
        self.promise = Promise(self.in_flight)

    def begin_events(self, offsets: list[int], now_ms: int) -> int:
        """Start the timeout of events that the client begins to work on. Return how many of them are in flight here."""
        if self.promise is None:
            return 0
        self.heard_ms = now_ms
        here = [offset for offset in offsets if offset in self.in_flight]
        new = self.promise.begin(here)
        self.subscription.suspects.note_begun(new)
        self._start_timers(new, now_ms)
        return len(here)

    def deliver_lines(self, offsets: list[int], lines: list[bytes]) -> None:
        """Put the lines of events into the session's outbox. The events are already in flight here."""
        if self.ids is not None:
            self.ids.note_lines(offsets, lines)
        self.session.outbox.add_events(lines)
        if self.share is not None and not self._unsent:
            self.share.unsent.append(self)
        self._unsent += offsets
        # An event that was here before may still have an older deadline.
        for offset in self.subscription.backlog.given_before(offsets, self.subscription.attempts):
            self.deadlines.suspend(offset)

    def depart(self) -> None:
        """Note that the write of all events delivered so far has begun."""
        self._departing, self._unsent = self._unsent, []

    def note_sent(self, now_ms: int) -> None:
        """Start the timeouts of the events that have been written to the socket."""
        offsets, self._departing = self._departing, []
        if not offsets:
            return
        if self.promise is None:
            self._start_timers(offsets, now_ms)
            return
        if self.promise.is_idle:
            self.heard_ms = now_ms
        # A client works on its events one after the other, and each may take the whole timeout.
        self.promise.note_sent(offsets, now_ms + self.subscription.policy.timeout_ms * (len(self.in_flight) + 1))

    def extend_deadline(self, offset: int, now_ms: int) -> None:
        """Restart the timeout of an event in flight. This also begins an event that was not begun."""
        if self.promise is not None and offset not in self.promise.begun:
            self.begin_events([offset], now_ms)
        self.deadlines.move(offset, now_ms + self.subscription.policy.timeout_ms, self.in_flight)

    def take_out(self, offsets: list[int]) -> dict[int, int]:
        """Remove those of `offsets` that are in flight, and return them with their slots."""
        in_flight = self.in_flight
        removed = {offset: in_flight.pop(offset) for offset in offsets if offset in in_flight}
        if self.deadlines.has_moved:
            for offset in removed:
                self.deadlines.forget(offset)
        if self.promise is not None:
            self.promise.forget_events(removed)
        if self.ids is not None:
            self.ids.trim()
        if self.share is not None:
            self.share.release(len(removed))
        self.subscription.backlog.note_out(removed)
        return removed

    def _start_timers(self, offsets: list[int], now_ms: int) -> None:
        due = now_ms + self.subscription.policy.timeout_ms
        for offset in self.subscription.backlog.given_before(offsets, self.subscription.attempts):
            self.deadlines.move(offset, due, self.in_flight)
        self.deadlines.add(offsets, due, self.in_flight)
