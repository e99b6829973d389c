"""The confirmations that wait until marks have passed their events.

Always true:

- a confirmation waits for at most `within` after its event has arrived, and is then sent with the lesser promise;
- a `MarkWait` keeps no entry for each event: one entry for each step of time stands for all events in it;
- a session is parked in at most one `MarkWait`: the one that its next reply waits for.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from broker.core.session import Session
from broker.core.topic.topic import Topic
from tweetwire.protocol.confirmation import REPLICATED, Confirmation, ConfirmationChange
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.words import OFFSET_MAX

__all__ = ["MarkWait", "MarkWaits"]

STEP_MS: Final = 100
"""The precision of `within`."""
TOPIC_WAITS_MAX: Final = 64
WAITS_MAX: Final = 1_000


class MarkWait:
    """Events of one topic whose confirmations wait for the same marks, for the same time."""

    def __init__(self, topic: Topic, confirmation: Confirmation, counts: dict[str, int]) -> None:
        self.confirmation = confirmation
        self._topic = topic
        self._counts = counts
        # All marks have passed the events below `_floor`. The time of the events below `_given_up` is over.
        self._floor = 0
        self._given_up = 0
        # (step, offset): in that step of time, the wait for the events below the offset ends
        self._deadlines: deque[tuple[int, int]] = deque()
        # The sessions whose next reply waits for the event at `first`, as a heap: (first, number of the session, session)
        self._parked: list[tuple[int, int, Session]] = []
        self.note_marks()

    @property
    def end(self) -> int:
        """The offset below which events are confirmed now."""
        return min(self._topic.visible, max(self._floor, self._given_up))

    @property
    def is_over(self) -> bool:
        """Whether no event waits."""
        return not self._deadlines and not self._parked

    def has_given_up(self, offset: int) -> bool:
        """Whether the wait for an event is over, and the marks have not passed it."""
        return self._floor <= offset < self._given_up

    def expect(self, below: int, now_ms: int) -> None:
        """Wait for the events below an offset, which have arrived now."""
        step = -(-(now_ms + self.confirmation.within_ms) // STEP_MS)
        if self._deadlines and self._deadlines[-1][0] == step:
            _, before = self._deadlines.pop()
            below = max(below, before)
        self._deadlines.append((step, below))

    def note_marks(self) -> None:
        """Note how far the marks are. A mark that does not exist has passed no event."""
        marks = self._topic.marks.by_name
        self._floor = min(marks[name].offset if name in marks else 0 for name in self.confirmation.after)

    def note_time(self, now_ms: int) -> None:
        """Give up the events whose time is over."""
        while self._deadlines and self._deadlines[0][0] * STEP_MS <= now_ms:
            self._given_up = max(self._given_up, self._deadlines.popleft()[1])

    def fall_back(self, visible: int) -> None:
        """Forget the events from offset `visible` on, which were not stored. Later events get their offsets."""
        self._given_up = self._given_up if self._given_up == OFFSET_MAX else min(self._given_up, visible)
        self._deadlines = deque((step, min(below, visible)) for step, below in self._deadlines)

    def give_up(self) -> None:
        """Wait no longer: the topic was dropped, or the broker ends."""
        self._deadlines.clear()
        self._given_up = OFFSET_MAX

    def promised(self, first: int, last: int, lesser: str) -> list[tuple[int, int, str]]:
        """Return runs (first, last, promise) of events that are confirmed now. Excepted events have the lesser promise."""
        # `MarkWaits` forgets a wait that is over, but a reply that waits for an earlier one may still refer to it.
        self.note_marks()
        runs: list[tuple[int, int, str]] = []
        at = first
        for offset in self._excepted(first, min(last, self._floor - 1)):
            if at < offset:
                runs.append((at, offset - 1, REPLICATED))
            runs.append((offset, offset, lesser))
            at = offset + 1
        if at <= last and at < self._floor:
            runs.append((at, min(last, self._floor - 1), REPLICATED))
            at = self._floor
        if at <= last:
            runs.append((at, last, lesser))
        replicated = sum(end - begin + 1 for begin, end, promise in runs if promise is REPLICATED)
        self._counts["confirmed_replicated"] += replicated
        self._counts["confirmed_late"] += last - first + 1 - replicated
        return runs

    def _excepted(self, first: int, last: int) -> Iterable[int]:
        marks = self._topic.marks.by_name
        found = (marks[name].excepts(first, last) for name in self.confirmation.after if name in marks)
        return sorted(set(chain.from_iterable(found)))

    def park(self, session: Session, first: int) -> None:
        """Keep a session whose next reply waits for the event at `first`."""
        session.parked = self
        heapq.heappush(self._parked, (first, session.number, session))

    def unparked(self) -> Iterator[Session]:
        """Yield the sessions that have a confirmation to send. A session may be parked again meanwhile."""
        while self._parked and self._parked[0][0] < self.end:
            _, _, session = heapq.heappop(self._parked)
            session.parked = None
            yield session


class MarkWaits:
    """All waits of a broker."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts
        # By topic: the waits that new events may join, and all waits that are not over
        self._current: dict[Topic, dict[Confirmation, MarkWait]] = {}
        self._living: dict[Topic, list[MarkWait]] = {}
        self._number = 0
        self._is_closed = False

    def find(self, topic: Topic, change: ConfirmationChange | None) -> MarkWait | None:
        """Return the wait of events that are published now, or None if they wait for no mark.

        Raises Refusal ``too_many``, but not if `change` is None.
        """
        confirmation = topic.confirmation if change is None else topic.confirmation.changed(change)
        if not confirmation.after:
            return None
        wait = self._current.get(topic, {}).get(confirmation)
        if wait is None:
            if change is not None and not self._has_room(topic):
                raise Refusal(
                    "too_many",
                    "events wait for too many combinations of marks; set the topic's marks with confirm, or try later",
                )
            wait = self._make(topic, confirmation)
        return wait

    def find_again(self, wait: MarkWait, offset: int, topic: Topic) -> MarkWait:
        """Return the wait of an event that was published before. It waits again if it was given up meanwhile."""
        if not wait.has_given_up(offset) or self._is_closed:
            return wait
        # The other events of a run may have made one already.
        current = self._current.get(topic, {}).get(wait.confirmation)
        if current is not None and not current.has_given_up(offset):
            return current
        return self._make(topic, wait.confirmation) if self._has_room(topic) else wait

    def note_marks(self, topic: Topic) -> list[MarkWait]:
        """Note that marks of a topic have changed. Return the waits of the topic."""
        waits = self._living.get(topic, [])
        for wait in waits:
            wait.note_marks()
        return waits

    def fall_back(self, topic: Topic) -> None:
        """Forget the events of a topic that are not stored, after a write failed."""
        for wait in self._living.get(topic, ()):
            wait.fall_back(topic.visible)

    def note_time(self, now_ms: int) -> list[MarkWait]:
        """Give up the events whose time is over, and return all waits. Forget those that no event needs."""
        if not self._living:
            return []
        waits = list(chain.from_iterable(self._living.values()))
        for wait in waits:
            wait.note_time(now_ms)
        return waits

    def forget_idle(self) -> None:
        """Forget the waits that no event needs."""
        for topic, waits in list(self._living.items()):
            kept = [wait for wait in waits if not wait.is_over]
            if len(kept) < len(waits):
                self._number -= len(waits) - len(kept)
                self._living[topic] = kept
                self._current[topic] = {key: one for key, one in self._current[topic].items() if not one.is_over}
            if not kept:
                del self._living[topic], self._current[topic]

    def give_up(self, topic: Topic) -> list[MarkWait]:
        """Wait no longer for the events of a topic that was dropped. Return its waits."""
        waits = self._living.pop(topic, [])
        self._current.pop(topic, None)
        self._number -= len(waits)
        for wait in waits:
            wait.give_up()
        return waits

    def close(self) -> list[MarkWait]:
        """Wait no longer for any event, since the broker ends. Return all waits."""
        self._is_closed = True
        waits = list(chain.from_iterable(self._living.values()))
        for wait in waits:
            wait.give_up()
        return waits

    def _has_room(self, topic: Topic) -> bool:
        return self._number < WAITS_MAX and len(self._living.get(topic, ())) < TOPIC_WAITS_MAX

    def _make(self, topic: Topic, confirmation: Confirmation) -> MarkWait:
        wait = MarkWait(topic, confirmation, self._counts)
        if self._is_closed:
            wait.give_up()
        self._current.setdefault(topic, {})[confirmation] = wait
        self._living.setdefault(topic, []).append(wait)
        self._number += 1
        return wait
