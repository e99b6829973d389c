"""Convert a subscription to records for the journal, and records to a subscription."""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from copy import deepcopy
from itertools import chain
from operator import itemgetter
from typing import Final, TypeAlias

from broker.core.topic import slots
from broker.core.topic.subscription import Subscription
from broker.journal.records import (
    DeadRecord,
    DiscardedRecord,
    FailedRecord,
    LetterRecord,
    PausedRecord,
    PolicyRecord,
    RedrivenRecord,
    SettledRecord,
    SubscriptionChange,
    SubscriptionRecord,
)
from tweetwire.protocol.failures import Attempts

__all__ = ["KeptSubscription", "restore_subscription", "settled_record", "subscription_record"]

PriorityOf: TypeAlias = Callable[[int], int]
Runs: TypeAlias = list[tuple[int, int]]

_FEW: Final = 8


class KeptSubscription:
    """One subscription, as it is stored in the records."""

    def __init__(self, record: SubscriptionRecord) -> None:
        self.record = deepcopy(record)
        self.settled: list[SettledRecord] = []

    @property
    def reached(self) -> int:
        """The lowest offset that is above all offsets in the records."""
        settled = (last for one in self.settled for runs in one.runs.values() for _, last in runs)
        letters = (offset for offset, _ in (*self.record.dead, *self.record.dying))
        return max(self.record.floor, 1 + max((-1, *settled, *self.record.open, *letters)))

    def note(self, change: SubscriptionChange) -> None:
        """Apply a later record to the subscription."""
        record = self.record
        match change:
            case SettledRecord():
                self.settled.append(change)
            case FailedRecord():
                before = record.attempts.get(change.offset)
                record.attempts[change.offset] = Attempts.after(before, change.failure, is_strike=change.is_strike)
                if change.letter is not None:
                    self._place_letter(change.offset, change.letter)
            case LetterRecord():
                self._place_letter(change.offset, change.letter)
            case DeadRecord():
                # After a purge, the subscription may pass over the dead event. It must not be dying then.
                self._end_dying({change.offset})
                record.dead.append((change.offset, change.letter))
            case RedrivenRecord():
                self._redrive(set(change.offsets))
            case DiscardedRecord():
                self._discard(change.offsets)
            case PausedRecord():
                record.is_paused = change.is_paused
            case PolicyRecord():
                record.policy = change.policy

    def _place_letter(self, offset: int, letter: int) -> None:
        self._end_dying({offset})
        self.record.dying.append((offset, letter))

    def _end_dying(self, offsets: set[int]) -> None:
        # This runs for each death. Few events are dying at a time, but many may be dead.
        self.record.dying = [one for one in self.record.dying if one[0] not in offsets]

    def _forget_deaths(self, offsets: set[int]) -> None:
        self._end_dying(offsets)
        self.record.dead = [one for one in self.record.dead if one[0] not in offsets]

    def _redrive(self, offsets: set[int]) -> None:
        record = self.record
        self._forget_deaths(offsets)
        record.open = [*record.open, *offsets.difference(record.open)]
        for offset in offsets & record.attempts.keys():
            record.attempts[offset] = record.attempts[offset].forgiven()

    def _discard(self, by_priority: Mapping[int, list[int]]) -> None:
        record = self.record
        offsets = set(chain.from_iterable(by_priority.values()))
        self._forget_deaths(offsets)
        record.open = [offset for offset in record.open if offset not in offsets]
        for offset in offsets & record.attempts.keys():
            del record.attempts[offset]
        # The death may be newer than the record. Then the event is above the floor of its lane.
        runs = {priority: list(slots.runs(sorted(some))) for priority, some in by_priority.items()}
        self.settled.append(SettledRecord(record.topic, record.name, runs))


def subscription_record(subscription: Subscription, visible: int, *, has_schedule: bool = False) -> SubscriptionRecord:
    """Return the record that keeps a subscription of a topic whose events below offset `visible` can be read.

    If it `has_schedule`, it is kept together with the topic's schedule, and does not name the scheduled events.
    """
    unsettled = {offset for _, offset, _ in subscription.backlog.apart()}
    unsettled.update(subscription.dying, subscription.offsets_in_flight())
    heads = subscription.backlog.heads()
    if not has_schedule:
        unsettled.update(subscription.schedule.passed_offsets(subscription.start, heads))
    dead = [(offset, letter) for offset, (_, letter) in subscription.dead.items()]
    dying = [(offset, letter) for offset, (_, letter) in subscription.dying.items()]
    return SubscriptionRecord(
        subscription.topic,
        subscription.name,
        subscription.start,
        visible,
        heads,
        subscription.policy,
        sorted(unsettled),
        dead,
        dict(subscription.attempts),
        list(subscription.owners),
        dying,
        subscription.is_paused,
        has_schedule=has_schedule,
    )


def settled_record(subscription: Subscription, settled: Mapping[int, int]) -> SettledRecord:
    """Return the record which says that events ({offset: slot}) of a subscription are settled."""
    runs: dict[int, Runs] = {}
    if subscription.policy.ordered == "key" and len(settled) > _FEW:
        # Neighbours in a lane seldom have the same key, so looking for runs is not worth its time.
        lowest = slots.priority_of(min(settled.values()))
        if lowest == slots.priority_of(max(settled.values())):
            return SettledRecord(
                subscription.topic, subscription.name, {lowest: list(zip(settled, settled, strict=True))}
            )
        for offset, slot in settled.items():
            runs.setdefault(slots.priority_of(slot), []).append((offset, offset))
        return SettledRecord(subscription.topic, subscription.name, runs)
    by_slot = {slot: offset for offset, slot in settled.items()}
    for first, last in slots.runs(sorted(by_slot)):
        runs.setdefault(slots.priority_of(first), []).append((by_slot[first], by_slot[last]))
    return SettledRecord(subscription.topic, subscription.name, runs)


def restore_subscription(
    subscription: Subscription,
    record: SubscriptionRecord,
    settled: list[SettledRecord],
    priority_of: PriorityOf,
    released: Mapping[int, int],
) -> None:
    """Restore a subscription from `record` and the later records `settled`. Extend the lanes back to its lowest floor.

    `released` has the priorities of events that were scheduled when the record was made and are not scheduled any more.
    """
    runs: dict[int, Runs] = {}
    for one in settled:
        for priority, some in one.runs.items():
            runs.setdefault(priority, []).extend(some)
    for some in runs.values():
        some.sort()
    _restore_failures(subscription, record, runs, priority_of)
    given_up = subscription.dead | subscription.dying
    opened = [
        (offset, priority)
        for offset, priority in ((offset, priority_of(offset)) for offset in record.open if offset not in given_up)
        if offset not in subscription.schedule and not _is_within(offset, runs.get(priority, []))
    ]
    # Dead and open events were taken from their lanes, too, even if they are above a lane's floor.
    passed = {priority: list(some) for priority, some in runs.items()}
    for offset, priority in [*opened, *((offset, priority) for offset, (priority, _) in given_up.items())]:
        passed.setdefault(priority, []).append((offset, offset))
    for priority in subscription.backlog.priorities:
        floor = record.floors.get(priority, record.floor)
        subscription.backlog.restore_position(priority, floor, passed.get(priority, []))
    for offset, priority in opened:
        subscription.backlog.reopen([offset], priority)
    if record.has_schedule and released:
        others = given_up.keys() | set(record.open)
        for offset, priority in released.items():
            is_below = subscription.start <= offset < record.floors.get(priority, record.floor)
            if is_below and offset not in others and not _is_within(offset, runs.get(priority, [])):
                subscription.backlog.reopen([offset], priority)
    subscription.backlog.count_passed(subscription.start)


def _restore_failures(
    subscription: Subscription, record: SubscriptionRecord, settled: Mapping[int, Runs], priority_of: PriorityOf
) -> None:
    """Restore failed tries, dead events and dying events. Tries of events that were settled since are left out."""
    attempts = dict(record.attempts)
    subscription.dead = {offset: (priority_of(offset), letter) for offset, letter in record.dead}
    subscription.dying = {
        offset: (priority_of(offset), letter)
        for offset, letter in record.dying
        if offset in attempts and offset not in subscription.dead
    }
    for offset in [one for one in attempts if one not in subscription.dead and one not in subscription.dying]:
        # Look at the runs first: most offsets are in none of them, so the index file is seldom read for a priority.
        found = [priority for priority, some in settled.items() if _is_within(offset, some)]
        if found and priority_of(offset) in found:
            del attempts[offset]
    subscription.attempts = attempts


def _is_within(offset: int, runs: Runs) -> bool:
    """Whether an offset is in one of `runs` (first, last), which are sorted and do not overlap."""
    at = bisect_right(runs, offset, key=itemgetter(0))
    return at > 0 and offset <= runs[at - 1][1]
