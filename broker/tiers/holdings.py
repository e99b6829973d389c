"""The uploaded segments of each topic, and the choice of those that a manifest names. No I/O.

Always true: a manifest names only segments that were uploaded, in order, and ends before the first local sealed segment that
was not. So its lines have no gap that the local log does not have.
"""

from collections.abc import Iterable, Iterator, Sequence
from errno import ENOENT
from typing import NamedTuple

from broker.core import Topic
from broker.log import CommitLog
from broker.log.segment import Segment
from broker.tiers.manifest import NamedSegment, NamedTopic
from broker.tiers.state_copy import StateCopy

__all__ = ["Holdings", "Waiting"]


class Waiting(NamedTuple):
    """A sealed segment that is to be uploaded."""

    topic: Topic
    segment: Segment


class Holdings:
    """The uploaded segments of each topic. A topic that was dropped and made again is another topic."""

    def __init__(self) -> None:
        self._held: dict[Topic, dict[int, NamedSegment]] = {}

    def note(self, topic: Topic, named: NamedSegment) -> None:
        """Note that a verified segment is in the bucket."""
        self._held.setdefault(topic, {})[named.first] = named

    def waiting(self, topics: Iterable[Topic]) -> Iterator[Waiting]:
        """Yield the sealed segments that are not in the bucket, those of a topic in order."""
        for topic in topics:
            held = self._held.get(topic, {})
            for segment in _segments(topic)[:-1]:
                if segment.next > segment.first and segment.first not in held:
                    yield Waiting(topic, segment)

    def name_topics(self, topics: Iterable[Topic], copy: StateCopy) -> dict[str, NamedTopic]:
        """Return the topics and segments that a manifest with the state `copy` names.

        Forget the topics that it no longer names.

        Raises OSError if a segment that the state needs is not uploaded, because its file is missing.
        """
        known, present = copy.by_name, set(topics)
        self._held = {topic: held for topic, held in self._held.items() if topic in present}
        return {
            topic.name: self._name(topic, copy.visible.get(topic, 0))
            for topic in present
            # The records of a dropped topic must not apply to a new one with its name.
            if known.get(topic.name, topic) is topic
        }

    def _name(self, topic: Topic, visible: int) -> NamedTopic:
        segments = _segments(topic)
        # Retention has removed the events below, and the state knows their producers.
        kept_from = min(segments[0].first, visible)
        held = {first: one for first, one in self._held.get(topic, {}).items() if one.next > kept_from}
        self._held[topic] = held
        missing = (one.first for one in segments[:-1] if one.next > one.first and one.first not in held)
        after = next(missing, segments[-1].first)
        if after < visible:
            raise OSError(
                ENOENT, f"the segment of {topic.name} that begins at @{after} cannot be read; run tweetwire fsck"
            )
        named = [one for first, one in sorted(held.items()) if first < after]
        return NamedTopic(after, str(topic.retention), named, topic.log.id)


def _segments(topic: Topic) -> Sequence[Segment]:
    """Return the segments of a topic whose log is on the disk."""
    if not isinstance(topic.log, CommitLog):
        raise TypeError(f"the log of {topic.name} is not on the disk")
    return topic.log.segments
