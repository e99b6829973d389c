"""A topic: what has been accepted, what is visible, and who reads it.

An event is *accepted* when it has an offset and stands in the pending batch, and *visible* when the log has it as the
promise says. Always true: offsets below `visible` are in the log; those from `visible` to `next` are pending or being
written; only visible events are delivered or read.
"""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import UNSET

from broker.core.ages import Ages
from broker.core.documentation import Documentation
from broker.core.lanes import Lanes
from broker.core.producers import Producers
from broker.core.recent import Memory, RecentLines
from broker.core.subscription import Subscription
from broker.errors import Refusal
from broker.events import IncomingEvent
from broker.log import Batch, Stretch, TopicLog
from broker.protocol.event_lines import place
from broker.protocol.policy import Policy
from broker.protocol.retention import Retention

__all__ = ["Accepted", "Topic"]


class Accepted(NamedTuple):
    """Offsets first…last, given to events behind each other; or, for a repeated event, the offset of the first one."""

    first: int
    last: int
    is_duplicate: bool


class Topic:
    """One topic over its log."""

    def __init__(self, name: str, log: TopicLog, memory: Memory) -> None:
        self.name = name
        self.log = log
        self.next = self.visible = log.next
        self.lanes = Lanes(self.visible)
        self.recent = RecentLines(self.visible, memory)
        self.producers = Producers()
        self.documentation = Documentation()
        self.retention = Retention()
        self.subscriptions: dict[str, Subscription] = {}
        self.published = 0
        self.duplicates = 0
        # The state's record that must be on the disk before this log is written on.
        self.needed_record = 0
        self.ages = Ages(log.last_timestamp)
        self._pending = Batch(self.next)
        self._last_timestamp = log.last_timestamp

    @property
    def has_pending(self) -> bool:
        """Whether events wait to be written."""
        return bool(self._pending.lines)

    def accept(self, events: list[IncomingEvent], now_ms: int) -> Iterator[Accepted | Refusal]:
        """Give events their offsets and put them into the pending batch; repeated ones are left out.

        Yields a run of offsets for what was accepted behind each other, one entry for each repeated event, and a refusal
        for each that must not be stored yet, or does not meet the topic's schema.
        """
        run: list[IncomingEvent] = []
        schema = self.documentation.schema
        for event in events:
            if event.producer is not UNSET or schema is not None:
                try:
                    duplicate = self.producers.duplicate_of(event)
                    if duplicate is None and schema is not None:
                        schema.check(event)
                except Refusal as refusal:
                    yield from self._accept_run(run, now_ms)
                    run = []
                    yield refusal
                    continue
                if duplicate is not None:
                    yield from self._accept_run(run, now_ms)
                    run = []
                    self.duplicates += 1
                    yield Accepted(duplicate, duplicate, is_duplicate=True)
                    continue
                self.producers.accept(event, self.next + len(run))
            run.append(event)
        yield from self._accept_run(run, now_ms)

    def _accept_run(self, events: list[IncomingEvent], now_ms: int) -> Iterator[Accepted]:
        if not events:
            return
        # A clock that was set back must not make the log run backwards in time.
        now_ms = self._last_timestamp = max(now_ms, self._last_timestamp)
        first, pending = self.next, self._pending
        lines, priorities = place(events, self.name, first, now_ms)
        pending.lines += lines
        pending.timestamps += [now_ms] * len(lines)
        pending.priorities += priorities
        self.next = first + len(lines)
        yield Accepted(first, self.next - 1, is_duplicate=False)

    def begin_write(self) -> Batch:
        """Hand over the pending batch; the next one begins behind it."""
        batch, self._pending = self._pending, Batch(self.next)
        self.producers.begin_write()
        return batch

    def commit(self, batch: Batch) -> None:
        """Make a written batch visible."""
        self.visible = batch.next
        self.published += len(batch.lines)
        self.producers.commit()
        self.recent.extend(batch.first, batch.lines)
        self.ages.note(batch.first, batch.timestamps[0])
        if self.subscriptions:
            self.lanes.extend(Stretch(batch.first, bytes(batch.priorities)))
        else:
            self.lanes = Lanes(self.visible)

    def fall_back(self) -> None:
        """Drop all that is accepted and not visible, after its write failed."""
        self.next = self.visible
        self._pending = Batch(self.next)
        self.producers.fall_back()

    def skip_to(self, offset: int) -> None:
        """Go on at `offset`, those before it having been given and lost. Raises OSError."""
        self.log.skip_to(offset)
        self.next = self.visible = offset
        self._pending = Batch(offset)
        self.lanes = Lanes(offset)

    def subscribe(self, name: str, start: int, policy: Policy, *, is_durable: bool) -> Subscription:
        """Make a subscription to the events from offset `start` on."""
        start = min(max(start, self.log.earliest), self.visible)
        if not self.lanes.reaches(start):
            self.lanes.extend_back(start, self.log.stretches(start))
        subscription = Subscription(self.name, name, self.lanes, start, is_durable=is_durable, policy=policy)
        self.subscriptions[name] = subscription
        return subscription

    def trim_lanes(self) -> None:
        """Let the lanes forget what every subscription has passed."""
        self.lanes.trim(subscription.positions for subscription in self.subscriptions.values())

    def read_lines(self, offsets: list[int]) -> list[tuple[int, bytes]]:
        """Read single events from memory or the log; damaged ones are missing in the result."""
        lines = self.recent.lines(offsets) if offsets else []
        if lines is not None:
            return list(zip(offsets, lines, strict=True))
        found = self.log.pick(sorted(offset for offset in offsets if offset >= self.log.earliest))
        return [(offset, found[offset]) for offset in offsets if offset in found]
