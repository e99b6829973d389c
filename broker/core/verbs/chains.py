"""Find which event caused which: events that name their `parent`, as trees across topics.

The trees come from an index by id over the newest events of all topics, at most `EVENTS_MAX`. It is made when a client asks for
a tree, and later requests read only the newer events. So publishing and delivering do no work for it. Several events may have
the same id. A child belongs to the newest of them that is not newer than the child.
"""

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, Final

from broker.core.steps import Interrupt
from broker.core.topic.topic import Topic
from broker.core.verbs.chain_index import Index, KnownEvent, known_event
from broker.core.verbs.search import Search
from tweetwire.protocol.errors import Refusal

__all__ = ["Chains"]

EVENTS_MAX: Final = 200_000
READ_LINES: Final = 10_000
READ_BYTES: Final = 4 << 20
LOOK_UP_S: Final = 0.05


class _Parents:
    """The events with one id. `of` finds which of them is a child's parent."""

    def __init__(self, events: Sequence[KnownEvent]) -> None:
        # {timestamp: {topic: its two newest events of that time}}; the event with the higher offset is the newer.
        self._at: dict[int, dict[str, list[KnownEvent]]] = {}
        for event in events:
            newest = self._at.setdefault(event.timestamp, {}).setdefault(event.topic, [])
            newest[:] = sorted((*newest, event), key=_offset, reverse=True)[:2]
        self._times = sorted(self._at)
        # {timestamp: [the newest event, the newest event of the other topics]}; the event with the higher offset is the newer.
        self._newest = {time: heapq.nlargest(2, map(_first, by.values()), key=_offset) for time, by in self._at.items()}

    def of(self, child: KnownEvent) -> KnownEvent | None:
        """Return the parent of a child: the newest event that is not newer than the child.

        Events of the child's topic come first.
        """
        for number in range(bisect_right(self._times, child.timestamp) - 1, -1, -1):
            by_topic = self._at[self._times[number]]
            own = next((one for one in by_topic.get(child.topic, ()) if one != child), None)
            if own is not None:
                return own
            other = next((one for one in self._newest[self._times[number]] if one.topic != child.topic), None)
            if other is not None:
                return other
        return None


class _Trace:
    """One walk over the index, which looks up each id only once."""

    def __init__(
        self, chains: "Chains", seen: Collection[str], purged: Mapping[str, int], interrupt: Interrupt
    ) -> None:
        self._chains = chains
        self._purged = purged
        self._seen = seen
        self._interrupt = interrupt
        self._parents: dict[str, _Parents] = {}
        self._children: dict[str, dict[KnownEvent, list[KnownEvent]]] = {}

    def root(self, known: KnownEvent) -> KnownEvent:
        """Return the first cause of an event, as far as the index has it and the user may see it."""
        passed = {known}
        while (parent := self._parent_of(known)) is not None and parent.topic in self._seen and parent not in passed:
            self._interrupt.check()
            passed.add(parent)
            known = parent
        return known

    def walk(self, root: KnownEvent) -> Iterator[tuple[int, KnownEvent]]:
        """Yield (depth, event) from the root down, depth first."""
        left = [(0, root)]
        passed: set[KnownEvent] = set()
        while left:
            self._interrupt.check()
            depth, known = left.pop()
            if known in passed:
                continue
            passed.add(known)
            yield depth, known
            left += [(depth + 1, child) for child in reversed(self._children_of(known))]

    def _parent_of(self, known: KnownEvent) -> KnownEvent | None:
        if known.parent is None:
            return None
        if known.parent not in self._parents:
            self._parents[known.parent] = _Parents(self._left(self._chains.with_id(known.parent)))
        return self._parents[known.parent].of(known)

    def _children_of(self, known: KnownEvent) -> list[KnownEvent]:
        if known.id not in self._children:
            by_parent: dict[KnownEvent, list[KnownEvent]] = {}
            children = self._left(self._chains.with_parent(known.id))
            for child in sorted(child for child in children if child.topic in self._seen):
                parent = self._parent_of(child)
                if parent is not None:
                    by_parent.setdefault(parent, []).append(child)
            self._children[known.id] = by_parent
        return self._children[known.id].get(known, [])

    def _left(self, found: Sequence[KnownEvent]) -> Sequence[KnownEvent]:
        """Return the events that are not purged."""
        return [known for known in found if known.offset >= self._purged.get(known.topic, 0)]


class Chains:
    """The index. It reads files, so call it in threads. Several threads may call it; one at a time reads the new events."""

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self._events_max = events_max
        # The topics whose events are in the index. A topic may have been dropped and created again.
        self._topics: dict[str, Topic] = {}
        self._reached: dict[str, int] = {}
        self._by_id = Index()
        self._by_parent = Index()
        self._order: deque[KnownEvent] = deque()
        self._catching_up = Lock()
        # This lock is held only briefly, while the index changes or is read.
        self._changing = Lock()

    def trace(
        self,
        topics: Sequence[Topic],
        seen: Collection[str],
        topic: Topic,
        ref: int | str,
        *,
        limit: int,
        interrupt: Interrupt,
    ) -> dict[str, Any]:
        """Return the tree that an event is part of, in depth-first order, at most `limit` events of it.

        `topics` has all topics, and `seen` the names of those that the user may see. Raises Refusal ``no_event``, and
        Interrupted if the client is gone.
        """
        self._catch_up(topics, interrupt)
        asked = self._find(topic, ref, interrupt)
        purged = {one.name: one.log.hidden_below for one in topics if one.log.hidden_below}
        trace = _Trace(self, seen, purged, interrupt)
        root = trace.root(asked)
        found: list[dict[str, Any]] = []
        for depth, known in trace.walk(root):
            if len(found) == limit:
                return self._report(asked, root, found, is_whole=False)
            found.append({"depth": depth, **known._asdict()})
        return self._report(asked, root, found, is_whole=True)

    def with_id(self, id_: str) -> Sequence[KnownEvent]:
        """Return the events that have an id, the oldest first."""
        with self._changing:
            return self._by_id.get(id_)

    def with_parent(self, id_: str) -> Sequence[KnownEvent]:
        """Return the events that name an id as their parent, the oldest first."""
        with self._changing:
            return self._by_parent.get(id_)

    @staticmethod
    def _report(asked: KnownEvent, root: KnownEvent, found: list[dict[str, Any]], *, is_whole: bool) -> dict[str, Any]:
        return {
            "asked": {"topic": asked.topic, "offset": asked.offset},
            "unknown_parent": root.parent,
            "is_whole": is_whole,
            "events": found,
        }

    def _find(self, topic: Topic, ref: int | str, interrupt: Interrupt) -> KnownEvent:
        """Find the event that the client asks for. The walk begins at this event, even if the index has forgotten it."""
        if isinstance(ref, str):
            known = [
                one for one in self.with_id(ref) if one.topic == topic.name and one.offset >= topic.log.hidden_below
            ]
            if known:
                return known[-1]
            ref = Search(topic, ref).run(interrupt)
        if topic.log.earliest <= ref < topic.visible:
            for line in topic.log.pick([ref]).values():
                return known_event(line)
        raise Refusal("no_event", f"{topic.name} has the offsets {topic.log.earliest} to {topic.visible - 1}")

    # The index

    def _catch_up(self, topics: Sequence[Topic], interrupt: Interrupt) -> None:
        """Read the events since the last call, at most as many of each topic as its fair share of the index."""
        while not self._catching_up.acquire(timeout=LOOK_UP_S):
            interrupt.check()
        try:
            self._forget_dropped({topic.name: topic for topic in topics})
            new = {
                topic: max(0, topic.visible - max(self._reached.get(topic.name, 0), topic.log.earliest))
                for topic in topics
            }
            left = self._events_max
            for number, topic in enumerate(sorted(topics, key=new.__getitem__)):
                share = min(new[topic], left // (len(topics) - number))
                left -= share
                if new[topic]:
                    self._read(topic, share, interrupt)
        finally:
            self._catching_up.release()

    def _forget_dropped(self, topics: dict[str, Topic]) -> None:
        gone = {name for name, topic in self._topics.items() if topics.get(name) is not topic}
        self._topics = topics
        if gone:
            kept = [known for known in self._order if known.topic not in gone]
            with self._changing:
                self._by_id, self._by_parent, self._order = Index(), Index(), deque()
                for known in kept:
                    self._learn(known)
            for name in gone:
                self._reached.pop(name, None)

    def _read(self, topic: Topic, count: int, interrupt: Interrupt) -> None:
        end = topic.visible
        at = end - count
        while at < end:
            interrupt.check()
            lines, after, _ = topic.log.read(at, min(READ_LINES, end - at), READ_BYTES)
            known = [known_event(line) for line in lines]
            with self._changing:
                for one in known:
                    self._learn(one)
                while len(self._order) > self._events_max:
                    self._forget(self._order.popleft())
                self._reached[topic.name] = at = min(end, max(after, at + 1))
        self._reached[topic.name] = end

    def _learn(self, known: KnownEvent) -> None:
        self._by_id.add(known.id, known)
        if known.parent is not None:
            self._by_parent.add(known.parent, known)
        self._order.append(known)

    def _forget(self, known: KnownEvent) -> None:
        # The event that was added first is forgotten first, also among the events with one id.
        self._by_id.drop_oldest(known.id)
        if known.parent is not None:
            self._by_parent.drop_oldest(known.parent)


def _first(newest: list[KnownEvent]) -> KnownEvent:
    return newest[0]


def _offset(known: KnownEvent) -> int:
    return known.offset
