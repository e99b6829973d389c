"""Who gets which event, and what becomes of it: delivered, settled, failed, given again, dead.

The one place where an event leaves or enters a consumer's hands. Always true: a decision here moves an event between
exactly two of the places that `Subscription` names.
"""

import heapq
from collections.abc import Iterable
from itertools import count
from typing import Final

from broker.core.consumer import Consumer
from broker.core.dead_letters import DEAD_LETTERS, dead_letter
from broker.core.redrives import STEP_MS, Redrive
from broker.core.slots import priority_of
from broker.core.subscription import Subscription, Taken
from broker.core.topic import Topic
from broker.core.work import Fetch, Work
from broker.events import IncomingEvent
from broker.failures import Attempts, Failure
from broker.protocol.event_lines import redelivered
from broker.state import DeadRecord, FailedRecord, RedrivenRecord

__all__ = ["Delivery"]

TAKE_MAX: Final = 1000
TAKE_BYTES: Final = 1 << 20


class Delivery:
    """Moves events between subscriptions and their consumers, leaving the work to do in `work`."""

    def __init__(self, topics: dict[str, Topic], work: Work, counts: dict[str, int]) -> None:
        self._topics = topics
        self._work = work
        self._counts = counts
        # (due ms, tie breaker, whose): a consumer's earliest deadline, a subscription's earliest pause, or a redrive's share
        self._timers: list[tuple[int, int, Consumer | Subscription | Redrive]] = []
        self._ties = count()
        # letters on their way to the disk: {offset in dead_letters: (subscription, offset)}
        self._letters: dict[int, tuple[Subscription, int]] = {}

    def pump(self, subscription: Subscription, now_ms: int) -> None:
        """Give waiting events to consumers that have room, until one of the two has run out."""
        topic = self._topics[subscription.topic]
        max_wait_ms = subscription.policy.max_wait_ms
        aged = topic.ages.offset_before(now_ms - max_wait_ms, topic.visible) if max_wait_ms else 0
        for consumer in subscription.next_consumers():
            while (room := consumer.room) > 0:
                taken = subscription.take(min(room, TAKE_MAX, max(1, TAKE_BYTES // topic.recent.mean_bytes)), aged)
                if not taken:
                    return
                self._hand_over(topic, consumer, taken)

    def fetched(self, fetch: Fetch, found: list[tuple[int, bytes]], now_ms: int) -> None:
        """Deliver lines that had to be read from the log; one that is damaged or gone counts as settled."""
        consumer = fetch.consumer
        consumer.fetching = False
        missing = set(fetch.offsets).difference(offset for offset, _ in found)
        still_here = [(offset, line) for offset, line in found if offset in consumer.in_flight]
        self._deliver(consumer, [offset for offset, _ in still_here], [line for _, line in still_here])
        earliest = self._topics[consumer.subscription.topic].log.earliest
        overtaken = [offset for offset in missing if offset < earliest]
        consumer.subscription.overtaken += self.settle(consumer, overtaken)
        self._counts["damaged"] += self.settle(consumer, list(missing.difference(overtaken)))
        self.pump(consumer.subscription, now_ms)

    def sent(self, consumer: Consumer, now_ms: int) -> None:
        """What was delivered has left for the socket."""
        before = consumer.deadlines.next
        consumer.sent(now_ms)
        self._set_first_timer(consumer, before)

    def extend(self, consumer: Consumer, offset: int, now_ms: int) -> None:
        """Start the timer of an event in flight anew."""
        before = consumer.deadlines.next
        consumer.extend(offset, now_ms)
        self._set_first_timer(consumer, before)

    def settle(self, consumer: Consumer, offsets: list[int]) -> int:
        """Settle what of `offsets` is in flight with a consumer; returns how many."""
        subscription = consumer.subscription
        settled = consumer.take_out(offsets)
        if settled:
            subscription.settled += len(settled)
            self._counts["acked"] += len(settled)
            for offset in subscription.attempts.keys() & settled.keys():
                del subscription.attempts[offset]
            if subscription.is_durable:
                self._work.keep(subscription.settled_record(settled))
        return len(settled)

    def fail(self, consumer: Consumer, offsets: Iterable[int], failure: Failure) -> None:
        """Count a failed try of events in flight; each waits again, after its pause, or dies."""
        subscription = consumer.subscription
        is_strike = failure.cause in subscription.policy.strikes
        for offset, slot in consumer.take_out(list(offsets)).items():
            self._counts[f"failed_{failure.cause}"] += 1
            attempts = Attempts.after(subscription.attempts.get(offset), failure, is_strike=is_strike)
            subscription.attempts[offset] = attempts
            if subscription.is_durable:
                self._work.keep(FailedRecord(subscription.topic, subscription.name, offset, failure, is_strike))
            if attempts.strikes >= subscription.policy.tries and subscription.topic != DEAD_LETTERS:
                self._let_die(subscription, offset, slot, attempts)
            else:
                self._let_wait(subscription, offset, slot, failure.at + subscription.policy.pause_ms(attempts.count))

    def detach(self, consumer: Consumer, now_ms: int, *, is_failure: bool) -> None:
        """A consumer is gone: what it had is given to another one, or waits for the next."""
        subscription = consumer.subscription
        if not subscription.is_durable:
            self.forget(consumer)
            del self._topics[subscription.topic].subscriptions[subscription.name]
            return
        if is_failure:
            self.fail(consumer, list(consumer.in_flight), Failure(now_ms, "disconnect", consumer.session.name))
        else:
            subscription.give_back(consumer.take_out(list(consumer.in_flight)))
        subscription.consumers.remove(consumer)
        self.pump(subscription, now_ms)

    def forget(self, consumer: Consumer) -> None:
        """A consumer ends with its subscription: what it had in flight is nobody's any more."""
        consumer.take_out(list(consumer.in_flight))
        consumer.subscription.consumers.remove(consumer)

    def tick(self, now_ms: int) -> None:
        """Let deadlines and pauses end that are due."""
        while self._timers and self._timers[0][0] <= now_ms:
            _, _, whose = heapq.heappop(self._timers)
            if isinstance(whose, Consumer):
                self._end_deadlines(whose, now_ms)
            elif isinstance(whose, Redrive):
                self.redrive(whose, now_ms)
            else:
                whose.end_pauses(now_ms)
                if whose.next_due is not None:
                    self._set_timer(whose.next_due, whose)
                self.pump(whose, now_ms)

    def letters_stored(self, below: int) -> None:
        """Dead letters with offsets less than `below` are on the disk: what they tell of is dead."""
        for letter in [letter for letter in self._letters if letter < below]:
            subscription, offset = self._letters.pop(letter)
            priority = subscription.dying.pop(offset)
            subscription.dead[offset] = (priority, letter)
            if subscription.is_durable:
                self._work.keep(DeadRecord(subscription.topic, subscription.name, offset, priority, letter))

    def letters_lost(self, now_ms: int) -> None:
        """The dead letters on their way could not be stored: what they tell of is tried once more."""
        letters, self._letters = self._letters, {}
        for subscription, offset in letters.values():
            subscription.dead[offset] = (subscription.dying.pop(offset), -1)
            subscription.redrive(offset)
            self.pump(subscription, now_ms)

    def redrive(self, redrive: Redrive, now_ms: int) -> None:
        """Give a share of dead events again, to their subscription alone, and see to the rest later."""
        subscription = redrive.subscription
        offsets = [offset for offset in redrive.next_share() if offset in subscription.dead]
        for offset in offsets:
            subscription.redrive(offset)
        if subscription.is_durable and offsets:
            self._work.keep(RedrivenRecord(subscription.topic, subscription.name, offsets))
        if not redrive.is_done:
            self._set_timer(now_ms + STEP_MS, redrive)
        self.pump(subscription, now_ms)

    def _hand_over(self, topic: Topic, consumer: Consumer, taken: list[Taken]) -> None:
        offsets: list[int] = []
        for slot, run in taken:
            consumer.in_flight.update(zip(run, range(slot, slot + len(run)), strict=True))
            offsets += run
        lines = topic.recent.lines(offsets)
        if lines is None:
            consumer.fetching = True
            self._work.fetches.append(Fetch(consumer, offsets))
        else:
            self._deliver(consumer, offsets, lines)

    def _deliver(self, consumer: Consumer, offsets: list[int], lines: list[bytes]) -> None:
        attempts = consumer.subscription.attempts
        if attempts:
            again = attempts.keys() & set(offsets)
            if again:
                consumer.subscription.redelivered += len(again)
                lines = [
                    redelivered(line, attempts[offset].count + 1) if offset in again else line
                    for offset, line in zip(offsets, lines, strict=True)
                ]
        consumer.deliver(offsets, lines)
        self._counts["delivered"] += len(lines)
        self._work.sessions.add(consumer.session)

    def _let_wait(self, subscription: Subscription, offset: int, slot: int, due_ms: int) -> None:
        if subscription.policy.backoff_ms == 0:
            subscription.give_back({offset: slot})
            return
        before = subscription.next_due
        subscription.delay(offset, slot, due_ms)
        if before is None or due_ms < before:
            self._set_timer(due_ms, subscription)

    def _let_die(self, subscription: Subscription, offset: int, slot: int, attempts: Attempts) -> None:
        """Write the dead letter; the event is dead when the disk has it."""
        topic = self._topics[subscription.topic]
        letters = self._topics[DEAD_LETTERS]
        subscription.dying[offset] = priority_of(slot)
        lines = topic.read_lines([offset])
        letter = dead_letter(topic.name, offset, subscription.name, attempts, lines[0][1] if lines else None)
        self._letters[self._publish(letters, letter, attempts.errors[-1].at)] = (subscription, offset)

    def _publish(self, topic: Topic, event: IncomingEvent, now_ms: int) -> int:
        """Put an event of our own into a topic's pending batch; returns its offset."""
        topic_next = topic.next
        list(topic.accept([event], now_ms))
        self._work.topics.add(topic)
        return topic_next

    def _end_deadlines(self, consumer: Consumer, now_ms: int) -> None:
        over = consumer.deadlines.expired(now_ms, consumer.in_flight)
        if over:
            self.fail(consumer, over, Failure(now_ms, "timeout", consumer.session.name))
        if consumer.deadlines.next is not None:
            self._set_timer(consumer.deadlines.next, consumer)
        if over:
            self.pump(consumer.subscription, now_ms)

    def _set_first_timer(self, consumer: Consumer, before: int | None) -> None:
        """Set a consumer's timer if it had no deadline before; one that had has its timer already."""
        if before is None and consumer.deadlines.next is not None:
            self._set_timer(consumer.deadlines.next, consumer)

    def _set_timer(self, due_ms: int, whose: Consumer | Subscription | Redrive) -> None:
        heapq.heappush(self._timers, (due_ms, next(self._ties), whose))
