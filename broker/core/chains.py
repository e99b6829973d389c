"""What caused what: events that name their `parent`, as trees across topics.

An index by id over the newest events of all topics. It is made when somebody asks, and from then on read on from where
it was, so that publishing and delivering pay nothing for it; at most `EVENTS_MAX` events stand in it, the oldest leave
first. An id may stand for several events: a child belongs to the newest of them that is not newer than itself.
"""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType

from broker.core.topic import Topic
from broker.errors import Refusal

__all__ = ["Chains"]

EVENTS_MAX: Final = 200_000
READ_LINES: Final = 10_000
READ_BYTES: Final = 4 << 20


class _Head(Struct, gc=False):
    topic: str
    offset: int
    timestamp: int
    id: str
    parent: str | UnsetType = UNSET


class _Known(NamedTuple):
    timestamp: int
    topic: str
    offset: int
    id: str
    parent: str | None


_decode_head = msgspec.json.Decoder(_Head).decode


class Chains:
    """The index. It reads files, so it is for a thread, and for one at a time."""

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self._events_max = events_max
        self._reached: dict[str, int] = {}
        self._by_id: dict[str, list[_Known]] = {}
        self._by_parent: dict[str, list[_Known]] = {}
        self._order: deque[_Known] = deque()

    def trace(
        self, topics: Sequence[Topic], seen: Collection[str], topic: Topic, ref: int | str, limit: int
    ) -> dict[str, Any]:
        """Return the tree that an event is part of, in depth-first order, at most `limit` events of it.

        `topics` are all that there are, `seen` the names of those that may be told of. Raises Refusal ``no_event``.
        """
        self._catch_up(topics)
        asked = self._find(topic, ref)
        root = self._root(asked, seen)
        found: list[dict[str, Any]] = []
        for depth, known in self._walk(root, seen):
            if len(found) == limit:
                return self._report(asked, root, found, is_whole=False)
            found.append({"depth": depth, **known._asdict()})
        return self._report(asked, root, found, is_whole=True)

    @staticmethod
    def _report(asked: _Known, root: _Known, found: list[dict[str, Any]], *, is_whole: bool) -> dict[str, Any]:
        return {
            "asked": {"topic": asked.topic, "offset": asked.offset},
            "unknown_parent": root.parent,
            "is_whole": is_whole,
            "events": found,
        }

    def _find(self, topic: Topic, ref: int | str) -> _Known:
        if isinstance(ref, str):
            known = [one for one in self._by_id.get(ref, ()) if one.topic == topic.name]
            if known:
                return known[-1]
            raise Refusal("no_event", f"none of the newest events of {topic.name} has the id {ref}")
        if topic.log.earliest <= ref < topic.visible:
            for line in topic.log.pick([ref]).values():
                return _known(line)
        raise Refusal("no_event", f"{topic.name} has the offsets {topic.log.earliest} to {topic.visible - 1}")

    def _root(self, known: _Known, seen: Collection[str]) -> _Known:
        passed = {known}
        while (parent := self._parent_of(known)) is not None and parent.topic in seen and parent not in passed:
            passed.add(parent)
            known = parent
        return known

    def _walk(self, root: _Known, seen: Collection[str]) -> Iterator[tuple[int, _Known]]:
        left = [(0, root)]
        passed: set[_Known] = set()
        while left:
            depth, known = left.pop()
            if known in passed:
                continue
            passed.add(known)
            yield depth, known
            children = sorted(child for child in self._by_parent.get(known.id, ()) if child.topic in seen)
            left += [(depth + 1, child) for child in reversed(children) if self._parent_of(child) == known]

    def _parent_of(self, known: _Known) -> _Known | None:
        if known.parent is None:
            return None
        older = (one for one in self._by_id.get(known.parent, ()) if one.timestamp <= known.timestamp and one != known)
        return max(older, key=lambda one: (one.timestamp, one.topic == known.topic, one.offset), default=None)

    # The index

    def _catch_up(self, topics: Sequence[Topic]) -> None:
        """Read what has come since, of each topic as much of the newest as its fair share of the index allows."""
        new = {
            topic: max(0, topic.visible - max(self._reached.get(topic.name, 0), topic.log.earliest)) for topic in topics
        }
        left = self._events_max
        for number, topic in enumerate(sorted(topics, key=new.__getitem__)):
            share = min(new[topic], left // (len(topics) - number))
            left -= share
            self._read(topic, share)
        while len(self._order) > self._events_max:
            self._forget(self._order.popleft())

    def _read(self, topic: Topic, count: int) -> None:
        end = topic.visible
        at = end - count
        while at < end:
            lines, at, _ = topic.log.read(at, min(READ_LINES, end - at), READ_BYTES)
            for line in lines:
                self._learn(_known(line))
        self._reached[topic.name] = end

    def _learn(self, known: _Known) -> None:
        self._by_id.setdefault(known.id, []).append(known)
        if known.parent is not None:
            self._by_parent.setdefault(known.parent, []).append(known)
        self._order.append(known)

    def _forget(self, known: _Known) -> None:
        _drop(self._by_id, known.id, known)
        if known.parent is not None:
            _drop(self._by_parent, known.parent, known)


def _known(line: bytes) -> _Known:
    head = _decode_head(line)
    return _Known(head.timestamp, head.topic, head.offset, head.id, None if head.parent is UNSET else head.parent)


def _drop(index: dict[str, list[_Known]], name: str, known: _Known) -> None:
    index[name].remove(known)
    if not index[name]:
        del index[name]
