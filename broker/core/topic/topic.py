"""A topic: its accepted and its visible events, and the subscriptions that read it.

An event is *accepted* when it has an offset and is in the pending batch. It is *visible* when the log has stored it as
durably as the broker's settings promise. Always true:

- offsets below `visible` are in the log;
- offsets from `visible` to `next` are pending or being written;
- only visible events are delivered or read.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec import UNSET

from broker.core.dates import Dates
from broker.core.internal_topics import DEFAULT_RETENTION
from broker.core.steps import Steps
from broker.core.topic.ages import Ages
from broker.core.topic.documentation import Documentation
from broker.core.topic.lanes import Lanes
from broker.core.topic.marks import MarkRoom, Marks
from broker.core.topic.producers import ProducerRoom, Producers
from broker.core.topic.recent import Memory, RecentLines
from broker.core.topic.schedule import Agenda, Schedule
from broker.core.topic.subscription import Subscription
from broker.log import Batch, Stretch, TopicLog
from tweetwire.protocol.confirmation import Confirmation
from tweetwire.protocol.errors import Refusal, internal
from tweetwire.protocol.event_lines import place
from tweetwire.protocol.events import IncomingEvent
from tweetwire.protocol.fencing import NO_EPOCH
from tweetwire.protocol.policy import Policy
from tweetwire.protocol.retention import Retention
from tweetwire.protocol.timing import TimedEvent, fix_times

__all__ = ["Accepted", "Topic"]

_UNREAD: Final = frozenset({"out_of_sequence", "fenced"})
"""The refusals that do not depend on an event's content. They open no gap: the producer does not have to repeat it."""


class Accepted(NamedTuple):
    """The offsets first…last of consecutive accepted events, whose lines have `size` bytes.

    For a duplicate, both are the offset of the first copy.
    """

    first: int
    last: int
    is_duplicate: bool
    size: int = 0


class Topic:
    """One topic, which stores its events in `log`."""

    def __init__(
        self,
        name: str,
        log: TopicLog,
        memory: Memory,
        room: ProducerRoom | None = None,
        dates: Dates | None = None,
        *,
        mark_room: MarkRoom | None = None,
        agenda: Agenda | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self.next = self.visible = log.next
        self.schedule = Schedule(name, agenda)
        self.lanes = Lanes(self.visible, self.schedule)
        self.recent = RecentLines(self.visible, memory)
        self.producers = Producers(room)
        self.documentation = Documentation()
        self.marks = Marks(mark_room)
        self.confirmation = Confirmation()
        self.retention = DEFAULT_RETENTION.get(name, Retention())
        self.subscriptions: dict[str, Subscription] = {}
        self.published = 0
        self.duplicates = 0
        # The number of the record that must be on the disk before the log is written again
        self.needed_record = 0
        self.ages = Ages(log.last_arrived)
        self.dates = Dates() if dates is None else dates
        # How many commands are extending the lanes now
        self._lane_holds = 0
        self._pending = Batch(self.next)
        self._last_timestamp = log.last_timestamp

    @property
    def has_pending(self) -> bool:
        """Whether accepted events wait for the next write."""
        return bool(self._pending.lines)

    def accept(
        self, events: list[IncomingEvent], now_ms: int, *, is_timed: bool = False, epoch: int = NO_EPOCH
    ) -> Iterator[Accepted | Refusal]:
        """Give events their offsets and put them into the pending batch. Duplicates are left out.

        If `is_timed`, some of the events may be of the type `TimedEvent`. `epoch` is that of the line, see `Claims`.

        Yields in the order of the events:

        - a run of offsets for consecutive events that were accepted,
        - an entry for each duplicate,
        - a refusal for each event that must not be stored yet, or does not meet the topic's schema.
        """
        run: list[IncomingEvent] = []
        schema, known = self.documentation.schema, self.producers.accepted
        claims = self.producers.claims if self.producers.claims.epochs or epoch else None
        is_checked = is_timed or schema is not None
        for event in events:
            if event.producer is not UNSET or is_checked:
                try:
                    if claims is not None and event.producer is not UNSET:
                        claims.check(event.producer, epoch)
                    duplicate = self.producers.duplicate_of(event, self.name)
                    if is_timed and duplicate is None and isinstance(event, TimedEvent):
                        self._fix_times(event, now_ms)
                    if duplicate is None and (
                        schema is not None or event.checkpoint is not UNSET or event.producer not in known
                    ):
                        self._check(event)
                except Exception as error:  # noqa: BLE001 — the other events are stored
                    yield from self._accept_run(run, now_ms, is_timed=is_timed)
                    run = []
                    if not (isinstance(error, Refusal) and error.code in _UNREAD):
                        self.producers.refuse(event)
                    yield error if isinstance(error, Refusal) else internal(error)
                    continue
                if duplicate is not None:
                    yield from self._accept_run(run, now_ms, is_timed=is_timed)
                    run = []
                    self.duplicates += 1
                    yield Accepted(duplicate, duplicate, is_duplicate=True)
                    continue
                self.producers.accept(event, self.next + len(run))
            run.append(event)
        yield from self._accept_run(run, now_ms, is_timed=is_timed)

    def _check(self, event: IncomingEvent) -> None:
        """Raise Refusal if the schema refuses an event's message, or if there is no room for its producer."""
        schema, name = self.documentation.schema, event.producer
        if schema is not None:
            schema.check(event)
        if name is not UNSET and (event.checkpoint is not UNSET or name not in self.producers.accepted):
            self.producers.check_room(name, None if event.checkpoint is UNSET else event.checkpoint)

    def _fix_times(self, event: TimedEvent, now_ms: int) -> None:
        date_ms = self.dates.of(now_ms)
        fix_times(event, date_ms)
        if isinstance(event.due, int) and event.due > date_ms:
            self.schedule.check_room()

    def _accept_run(self, events: list[IncomingEvent], now_ms: int, *, is_timed: bool) -> Iterator[Accepted]:
        if not events:
            return
        first, pending = self.next, self._pending
        date_ms = self.dates.next_date(now_ms, self._last_timestamp, is_batch_begun=bool(pending.lines))
        self._last_timestamp, pending.arrived_ms = date_ms, now_ms
        lines, priorities, size = place(events, self.name, first, date_ms)
        pending.lines += lines
        pending.timestamps += [date_ms] * len(lines)
        pending.priorities += priorities
        self.next = first + len(lines)
        if is_timed:
            for event in events:
                if isinstance(event, TimedEvent):
                    self.schedule.note_event(event, self.dates.of(now_ms))
        yield Accepted(first, self.next - 1, is_duplicate=False, size=size)

    def begin_write(self) -> Batch:
        """Return the pending batch, and begin a new one."""
        batch, self._pending = self._pending, Batch(self.next)
        self.producers.begin_write()
        return batch

    def make_visible(self, batch: Batch) -> None:
        """Make the events of a written batch visible."""
        self.visible = batch.next
        self.published += len(batch.lines)
        self.producers.note_written()
        self.recent.extend(batch.first, batch.lines)
        self.ages.note(batch.first, batch.timestamps[0] if batch.arrived_ms is None else batch.arrived_ms)
        if self.schedule.is_used:
            self.schedule.commit(self.visible)
        if self.subscriptions:
            self.lanes.extend(Stretch(batch.first, bytes(batch.priorities)))
        else:
            self.lanes = Lanes(self.visible, self.schedule)

    def fall_back(self) -> None:
        """Drop the accepted events that are not visible, after a write failed."""
        self.next = self.visible
        self._pending = Batch(self.next)
        self._last_timestamp = self.log.last_timestamp
        self.producers.fall_back()
        self.schedule.fall_back()

    def skip_to(self, offset: int) -> None:
        """Continue at `offset`, since the offsets before it were assigned and lost. Raises OSError."""
        self.log.skip_to(offset)
        self.next = self.visible = offset
        self._pending = Batch(offset)
        self.lanes = Lanes(offset, self.schedule)

    def hide_below(self, offset: int) -> None:
        """Hide the events below `offset` from all readers."""
        self.log.hide_below(offset)
        self.recent.drop_below(offset)
        self.schedule.drop_below(offset)

    def reach_back(self, start: int) -> Steps[None]:
        """Extend the lanes back to `start`, in steps. A thread reads the priorities from the index files."""
        # Until then, the lanes must not forget the offsets that were read, or the offsets next to them.
        self._lane_holds += 1
        try:
            while not (lanes := self.lanes).reaches(start):
                known: list[Stretch] = yield lambda _: self.log.stretches(start)
                for stretch in reversed(known):
                    lanes.extend_back(stretch.first, [stretch])
                    yield None
                lanes.extend_back(start, ())
        finally:
            self._lane_holds -= 1

    def nearest_place(self, offset: int) -> int:
        """Return the nearest offset that is in the log or at its visible end."""
        return min(max(offset, self.log.earliest), self.visible)

    def subscribe(self, name: str, start: int, policy: Policy, *, is_durable: bool) -> Subscription:
        """Make a subscription to the events from offset `start` on."""
        start = self.nearest_place(start)
        if not self.lanes.reaches(start):
            self.lanes.extend_back(start, self.log.stretches(start))
        subscription = Subscription(self.name, name, self.lanes, start, is_durable=is_durable, policy=policy)
        self.subscriptions[name] = subscription
        return subscription

    def end_subscription(self, name: str) -> None:
        """Forget a subscription."""
        del self.subscriptions[name]

    def trim_lanes(self) -> None:
        """Let the lanes forget the offsets that every subscription has passed."""
        if not self._lane_holds:
            self.lanes.trim(subscription.backlog.positions for subscription in self.subscriptions.values())

    def read_lines(self, offsets: list[int]) -> list[tuple[int, bytes]]:
        """Read single events from memory or the log; damaged ones are left out."""
        lines = self.recent.lines(offsets) if offsets else []
        if lines is not None:
            return list(zip(offsets, lines, strict=True))
        found = self.log.pick(sorted(offset for offset in offsets if offset >= self.log.earliest))
        return [(offset, found[offset]) for offset in offsets if offset in found]
