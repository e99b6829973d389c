"""Events that the broker gives up, and their dead letters on the way to the disk.

The last failed try of an event and its death are one record, and the reply leaves after the journal has it. The record names
the offset of the letter in ``dead_letters``. The log of that topic is written only after the record is on the disk. Always
true:

- after a crash the log shows whether a letter is stored, so no event gets two letters;
- an event that waits for its letter is delivered to no consumer, even if the letter cannot be written for a long time.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from broker.core.delivery.dead_letters import DEAD_LETTERS, dead_letter
from broker.core.topic.subscription import Subscription
from broker.core.topic.topic import Topic
from broker.core.work import Work
from broker.journal.records import DeadRecord, LetterRecord
from tweetwire.protocol.events import decode_stored

__all__ = ["Deaths"]

UNPLACED: Final = -1
AGAIN_MS: Final = 1000


class Deaths:
    """The dying events of all subscriptions: those whose dead letter is not on the disk yet.

    The I/O to do is left in `work`.
    """

    def __init__(self, topics: Mapping[str, Topic], work: Work) -> None:
        self._topics = topics
        self._work = work
        # Letters on their way to the disk: {offset in dead_letters: (subscription, offset)}
        self._letters: dict[int, tuple[Subscription, int]] = {}
        # Events whose letter could not be written, and the time (ms) of the next attempt
        self._unwritten: list[tuple[Subscription, int]] = []
        self._again_ms = 0

    def begin_death(self, subscription: Subscription, offset: int, priority: int, now_ms: int) -> int:
        """Give up an event and add its dead letter to the log. Return the letter's offset, `UNPLACED` if it must wait.

        The caller keeps a record with that offset, and then calls `hold_letters`.
        """
        letter = self._write(subscription, offset, now_ms)
        subscription.dying[offset] = (priority, letter)
        return letter

    def hold_letters(self, record: int) -> None:
        """Write the letters that are still pending only after the disk has record number `record`."""
        self._topics[DEAD_LETTERS].needed_record = record
        self._work.must_sync_records = True

    def note_stored_letters(self, below: int) -> None:
        """Mark as dead the events whose letters are on the disk: those with letters at offsets less than `below`."""
        for letter in [letter for letter in self._letters if letter < below]:
            self._note_dead(*self._letters.pop(letter), letter)

    def note_lost_letters(self, now_ms: int) -> None:
        """Note that the letters in the pending batch were not stored. They are written again later."""
        self._unwritten += self._letters.values()
        self._letters.clear()
        self._again_ms = now_ms + AGAIN_MS

    def forget_subscription(self, subscription: Subscription) -> None:
        """Forget the dying events of a subscription that has ended. Letters on their way to the disk are still stored."""
        if subscription.dying:
            self._letters = {letter: one for letter, one in self._letters.items() if one[0] is not subscription}
            self._unwritten = [one for one in self._unwritten if one[0] is not subscription]

    def tick(self, now_ms: int) -> None:
        """Write letters again that could not be written, once a second."""
        if self._unwritten and now_ms >= self._again_ms:
            self._again_ms = now_ms + AGAIN_MS
            unwritten, self._unwritten = self._unwritten, []
            for subscription, offset in unwritten:
                self._write_again(subscription, offset, now_ms)

    def restore_dying(self, subscriptions: Iterable[Subscription], now_ms: int) -> None:
        """Find which letters of dying events were stored before the start at `now_ms`, and write the others."""
        for subscription in subscriptions:
            for offset, (_, letter) in list(subscription.dying.items()):
                if self._is_stored(subscription, offset, letter):
                    self._note_dead(subscription, offset, letter)
                else:
                    self._write_again(subscription, offset, now_ms)

    def _write(self, subscription: Subscription, offset: int, now_ms: int) -> int:
        """Put a letter into the pending batch of ``dead_letters``. Return its offset."""
        topic, letters = self._topics[subscription.topic], self._topics[DEAD_LETTERS]
        try:
            lines = topic.read_lines([offset])
        except OSError:
            self._unwritten.append((subscription, offset))
            return UNPLACED
        attempts = subscription.attempts[offset]
        event = dead_letter(topic.name, offset, subscription.name, attempts, lines[0][1] if lines else None)
        letter = letters.next
        list(letters.accept([event], now_ms))
        self._letters[letter] = (subscription, offset)
        self._work.topics.add(letters)
        return letter

    def _write_again(self, subscription: Subscription, offset: int, now_ms: int) -> None:
        letter = self._write(subscription, offset, now_ms)
        priority, _ = subscription.dying[offset]
        subscription.dying[offset] = (priority, letter)
        if subscription.is_durable and letter != UNPLACED:
            record = LetterRecord(subscription.topic, subscription.name, offset, letter)
            self.hold_letters(self._work.keep(record))

    def _note_dead(self, subscription: Subscription, offset: int, letter: int) -> None:
        priority, _ = subscription.dying.pop(offset)
        subscription.dead[offset] = (priority, letter)
        if subscription.is_durable:
            self._work.keep(DeadRecord(subscription.topic, subscription.name, offset, priority, letter))

    def _is_stored(self, subscription: Subscription, offset: int, letter: int) -> bool:
        """Whether the log has the letter. A letter counts as stored if retention has removed it or it cannot be read."""
        log = self._topics[DEAD_LETTERS].log
        if letter == UNPLACED or letter >= log.next:
            return False
        line = log.pick([letter]).get(letter) if letter >= log.earliest else None
        if line is None:
            return True
        try:
            event = decode_stored(line)
        except msgspec.MsgspecError:
            return True
        return event.id == f"{subscription.topic}@{offset}" and event.key == subscription.name
