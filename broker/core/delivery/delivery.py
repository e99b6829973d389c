"""Decide which consumer gets each event, and handle the event until it is settled or dead.

Only this module gives events to consumers and takes them back. Always true: a decision here moves an event between exactly
two of the places that `broker.core.topic.subscription` names.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from broker.core.dates import Dates
from broker.core.delivery.dead_letters import DEAD_LETTERS
from broker.core.delivery.deaths import Deaths
from broker.core.delivery.failing import Failing
from broker.core.delivery.feeding import Feeding
from broker.core.delivery.handing import Handing
from broker.core.delivery.redrives import STEP_MS, PacedRedrive
from broker.core.delivery.timed import TimedEvents
from broker.core.delivery.timers import Timers
from broker.core.delivery.watching import Watch, lost_with
from broker.core.session import Session
from broker.core.topic.kept import settled_record
from broker.core.topic.ordered_backlog import OrderedBacklog
from broker.core.topic.share import Share
from broker.core.topic.slots import priority_of
from broker.core.topic.subscription import Consumer, Subscription
from broker.core.topic.topic import Topic
from broker.core.work import Fetch, Look, Work
from broker.journal.records import FailedRecord, RedrivenRecord
from tweetwire.protocol.failures import Attempts, Cause, Failure

__all__ = ["Delivery"]

_Timed: TypeAlias = Consumer | Watch | Subscription | PacedRedrive | Failing | Share[Consumer]
"""The owner of a timer: a deadline of a consumer, its silence, the earliest end of a pause, or the next part of a long work."""


class Delivery:
    """Moves events between subscriptions and their consumers, and leaves the I/O to do in `work`."""

    def __init__(self, topics: Mapping[str, Topic], work: Work, counts: dict[str, int], dates: Dates) -> None:
        self.deaths = Deaths(topics, work)
        self.timers: Timers[_Timed] = Timers()
        self._timed = TimedEvents(topics, work, counts, dates, self)
        self._handing = Handing(work, counts, self._timed, self.timers)
        self.feeding = Feeding(topics, self.timers, self._handing)
        self._topics = topics
        self._work = work
        self._counts = counts
        self._dates = dates

    def pump(self, subscription: Subscription, now_ms: int) -> None:
        """Give waiting events to consumers that have room, until there are no more events or no more room."""
        # A subscription may have ended, and its topic may have been dropped. Then it serves no consumer.
        if subscription.served:
            self._serve(subscription, now_ms)
        if self.feeding.due:
            self.feeding.feed_due(now_ms)

    def _serve(self, subscription: Subscription, now_ms: int) -> None:
        topic = self._topics[subscription.topic]
        if isinstance(subscription.backlog, OrderedBacklog):
            self._handing.ordered.pump(topic, subscription, subscription.backlog, now_ms)
            return
        aged = self._handing.aged(topic, subscription, now_ms)
        for consumer in subscription.next_consumers():
            if consumer.share is not None:
                consumer.share.want(consumer)
                continue
            while (room := consumer.room) > 0:
                taken = self._handing.take_next(topic, subscription, room, aged, now_ms)
                if not taken:
                    return
                self._handing.hand_over(topic, consumer, taken, now_ms)

    def note_fetched(self, fetch: Fetch | Look, found: list[tuple[int, bytes]], now_ms: int) -> None:
        """Deliver lines that were read from the log. An event that is damaged or no longer in the log counts as settled."""
        if isinstance(fetch, Look):
            self._handing.ordered.note_looked(fetch, found, now_ms)
            self.pump(fetch.subscription, now_ms)
            return
        consumer, subscription, earliest = fetch.consumer, fetch.consumer.subscription, fetch.topic.log.earliest
        consumer.fetching = False
        if subscription.is_paused:
            subscription.backlog.give_back(consumer.take_out(fetch.offsets))
        if earliest > min(fetch.offsets):
            # A purge may have hidden events since they were read.
            found = [(offset, line) for offset, line in found if offset >= earliest]
        missing = set(fetch.offsets).difference(offset for offset, _ in found)
        still_here = [(offset, line) for offset, line in found if consumer.prefetch and offset in consumer.in_flight]
        lines = [offset for offset, _ in still_here], [line for _, line in still_here]
        self._handing.deliver(fetch.topic, consumer, lines, now_ms)
        overtaken = [offset for offset in missing if offset < earliest]
        subscription.overtaken += self.settle(consumer, overtaken)
        self._counts["damaged"] += self.settle(consumer, list(missing.difference(overtaken)))
        self.pump(subscription, now_ms)

    def note_session_sent(self, session: Session, now_ms: int) -> None:
        """Start the timeouts of a session's events that have been written, and deliver further ones if there is room again."""
        was_full = session.outbox.was_full
        for consumer in session.consumers.values():
            self.note_sent(consumer, now_ms)
            if was_full:
                self.pump(consumer.subscription, now_ms)
        for share in session.shares.values():
            for consumer in share.take_sent():
                self.note_sent(consumer, now_ms)
            self.feeding.feed(share, now_ms)

    def note_sent(self, consumer: Consumer, now_ms: int) -> None:
        """Start the timeouts of the events that have been written to the socket."""
        before = consumer.deadlines.next
        consumer.note_sent(now_ms)
        self._start_first_timer(consumer, before)
        if consumer.promise is not None and not consumer.is_watched:
            self._watch(Watch(consumer, consumer.promise), now_ms)

    def begin_events(self, consumer: Consumer, offsets: list[int], now_ms: int) -> int:
        """Start the timeouts of events that a client begins to work on. Return how many of them are in flight with it."""
        before = consumer.deadlines.next
        begun = consumer.begin_events(offsets, now_ms)
        self._start_first_timer(consumer, before)
        return begun

    def extend_deadline(self, consumer: Consumer, offset: int, now_ms: int) -> None:
        """Restart the timeout of an event in flight."""
        before = consumer.deadlines.next
        consumer.extend_deadline(offset, now_ms)
        self._start_first_timer(consumer, before)

    def settle(self, consumer: Consumer, offsets: list[int]) -> int:
        """Settle those of `offsets` that are in flight with a consumer. Return how many."""
        subscription = consumer.subscription
        settled = consumer.take_out(offsets)
        if settled:
            subscription.settled += len(settled)
            self._counts["acked"] += len(settled)
            for offset in subscription.attempts.keys() & settled.keys():
                del subscription.attempts[offset]
            subscription.suspects.clear(settled)
            subscription.backlog.forget(settled)
            if subscription.is_durable:
                self._work.keep(settled_record(subscription, settled))
        return len(settled)

    def fail(self, consumer: Consumer, offsets: Iterable[int], failure: Failure, now_ms: int) -> None:
        """Count a failed try of events in flight. Each event waits again after its pause, or becomes a dead letter."""
        subscription = consumer.subscription
        is_strike = failure.cause in subscription.policy.strikes
        for offset, slot in consumer.take_out(list(offsets)).items():
            self._counts[f"failed_{failure.cause}"] += 1
            attempts = Attempts.after(subscription.attempts.get(offset), failure, is_strike=is_strike)
            subscription.attempts[offset] = attempts
            letter: int | None = None
            if attempts.strikes >= subscription.policy.tries and subscription.topic != DEAD_LETTERS:
                letter = self.deaths.begin_death(subscription, offset, priority_of(slot), now_ms)
                subscription.suspects.clear([offset])
                subscription.backlog.forget([offset])
            if subscription.is_durable:
                record = FailedRecord(subscription.topic, subscription.name, offset, failure, is_strike, letter)
                number = self._work.keep(record)
                if letter is not None:
                    self.deaths.hold_letters(number)
            if letter is None:
                self._let_wait(subscription, offset, slot, now_ms + subscription.policy.pause_ms(attempts.count))

    def detach(self, consumer: Consumer, now_ms: int, *, is_failure: bool, pause_ms: int = 0) -> None:
        """Remove a consumer after a pause of `pause_ms`. Its events go to other consumers, or wait for a new one."""
        subscription = consumer.subscription
        if not subscription.is_durable:
            self.discard(consumer)
            self._topics[subscription.topic].end_subscription(subscription.name)
            return
        # The consumer gets no more events. Its events stay in flight with it until their failed tries are counted.
        consumer.prefetch = 0
        lost = lost_with(consumer) if is_failure else []
        failing = Failing(consumer, lost, self._failure("disconnect", consumer, now_ms), is_leaving=True)
        if pause_ms:
            self.timers.start(now_ms + pause_ms, failing)
        else:
            self._fail_share(failing, now_ms)

    def discard(self, consumer: Consumer) -> None:
        """Remove a consumer of a subscription that ends. Its events in flight are dropped."""
        consumer.take_out(list(consumer.in_flight))
        consumer.subscription.consumers.remove(consumer)

    def retire(self, subscription: Subscription) -> None:
        """Stop all work for a subscription, such as a redrive or an unwritten dead letter.

        It has no consumers any more, and another subscription may have its name.
        """
        self.deaths.forget_subscription(subscription)
        subscription.dying, subscription.dead = {}, {}
        subscription.is_durable = False

    def tick(self, now_ms: int) -> None:
        """Handle the deadlines and pauses that have passed."""
        self.deaths.tick(now_ms)
        for subscription in self._timed.due_subscriptions(now_ms):
            self.pump(subscription, now_ms)
        for whose in self.timers.expired(now_ms):
            if isinstance(whose, Consumer):
                self._end_deadlines(whose, now_ms)
            elif isinstance(whose, PacedRedrive):
                self.redrive(whose, now_ms)
            elif isinstance(whose, Failing):
                self._fail_share(whose, now_ms)
            elif isinstance(whose, Watch):
                self._end_silence(whose, now_ms)
            elif isinstance(whose, Share):
                self.feeding.feed(whose, now_ms)
            else:
                self._end_pauses(whose, now_ms)
        self.feeding.feed_due(now_ms)

    def redrive(self, redrive: PacedRedrive, now_ms: int) -> None:
        """Return the next part of the dead events to their subscription, and start a timer for the rest."""
        subscription = redrive.subscription
        offsets = [offset for offset in redrive.next_share() if offset in subscription.dead]
        for offset in offsets:
            subscription.redrive(offset)
        if subscription.is_durable and offsets:
            self._work.keep(RedrivenRecord(subscription.topic, subscription.name, offsets))
        if not redrive.is_done:
            self.timers.start(now_ms + STEP_MS, redrive)
        self.pump(subscription, now_ms)

    def _let_wait(self, subscription: Subscription, offset: int, slot: int, due_ms: int) -> None:
        backlog = subscription.backlog
        if subscription.policy.backoff_ms == 0:
            backlog.give_back({offset: slot})
            return
        before = backlog.next_due
        backlog.delay(offset, slot, due_ms)
        if before is None or due_ms < before:
            self.timers.start(due_ms, subscription)

    def _end_pauses(self, subscription: Subscription, now_ms: int) -> None:
        backlog = subscription.backlog
        backlog.end_pauses(now_ms)
        if backlog.next_due is not None:
            self.timers.start(backlog.next_due, subscription)
        self.pump(subscription, now_ms)

    def _end_deadlines(self, consumer: Consumer, now_ms: int) -> None:
        over = consumer.deadlines.expired(now_ms, consumer.in_flight)
        if over:
            consumer.heard_ms = now_ms
            self._fail_share(Failing(consumer, over, self._failure("timeout", consumer, now_ms)), now_ms)
        if consumer.deadlines.next is not None:
            self.timers.start(consumer.deadlines.next, consumer)

    def _fail_share(self, failing: Failing, now_ms: int) -> None:
        """Count some failed tries now and the rest in the next ticks, so that other clients are not delayed."""
        consumer = failing.consumer
        subscription = consumer.subscription
        share = failing.next_share()
        if not failing.is_leaving:
            # Since the first share, an event may have been extended, or failed and delivered again.
            share = consumer.deadlines.still_over(share, now_ms)
        if share:
            self.fail(consumer, share, failing.failure, now_ms)
        if not failing.is_done:
            self.timers.start(now_ms + 1, failing)
        elif failing.is_leaving and consumer in subscription.consumers:
            subscription.backlog.give_back(consumer.take_out(list(consumer.in_flight)))
            subscription.consumers.remove(consumer)
        self.pump(subscription, now_ms)

    def _watch(self, watch: Watch, now_ms: int) -> None:
        """Start the timer after which a silent consumer loses its events, unless it has no events."""
        due_ms = watch.due_ms(now_ms)
        watch.consumer.is_watched = due_ms is not None
        if due_ms is not None:
            self.timers.start(max(due_ms, now_ms + STEP_MS), watch)

    def _end_silence(self, watch: Watch, now_ms: int) -> None:
        """Take back the events that a silent consumer has not begun."""
        consumer = watch.consumer
        subscription = consumer.subscription
        loss = watch.loss(now_ms)
        if loss.failed or loss.returned:
            consumer.heard_ms = now_ms
            self.fail(consumer, loss.failed, self._failure("timeout", consumer, now_ms), now_ms)
            subscription.backlog.give_back(consumer.take_out(loss.returned))
            subscription.put_last(consumer)
            self.pump(subscription, now_ms)
        self._watch(watch, now_ms)

    def _failure(self, cause: Cause, consumer: Consumer, now_ms: int) -> Failure:
        return Failure(self._dates.of(now_ms), cause, consumer.session.name)

    def _start_first_timer(self, consumer: Consumer, before: int | None) -> None:
        """Start a consumer's timer if it had no deadline before. A consumer with a deadline has its timer already."""
        if before is None and consumer.deadlines.next is not None:
            self.timers.start(consumer.deadlines.next, consumer)
