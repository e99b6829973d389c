"""All topics by name: find them, create them, drop them, and check which session may write to them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from broker.core.dates import Dates
from broker.core.internal_topics import BROKER_TOPICS
from broker.core.session import Session
from broker.core.topic.marks import MarkRoom
from broker.core.topic.producers import ProducerRoom
from broker.core.topic.recent import Memory
from broker.core.topic.topic import Topic
from broker.core.work import Work
from broker.journal.records import DroppedRecord
from broker.log import TopicLog
from tweetwire.files import why
from tweetwire.protocol.errors import Refusal

__all__ = ["Logs", "Topics"]

TOPICS_MAX: Final = 5000


class Logs(Protocol):
    """Opens the logs of topics."""

    def open(self, topic: str) -> TopicLog:
        """Open the topic's log, creating it if it is missing. Raises OSError."""
        ...


class Topics:
    """The topics of a broker, which share the memory for recent lines and for producers.

    If `makes_unknown` is not set, a client has to create a topic before it uses it. Always true:

    - `visible` has the visible end of each topic, for the replies that wait for it;
    - a topic that is being dropped has no owner, and no command finds it or makes another one with its name.
    """

    def __init__(self, logs: Logs, work: Work, dates: Dates, recent_bytes: int, *, makes_unknown: bool = True) -> None:
        self.by_name: dict[str, Topic] = {}
        self.visible: dict[str, int] = {}
        # The reason why the disk has no room for records that may be refused. Empty if it has room, as far as the broker knows.
        self.full_disk = ""
        # The reason why no client may publish, since another broker has taken over. Empty if this broker may accept events.
        self.fence = ""
        # Called with each new topic, before a command uses it
        self.when_made: Callable[[Topic], None] = lambda _: None
        self._logs = logs
        self._work = work
        self._dates = dates
        self._memory = Memory(recent_bytes)
        self._producer_room = ProducerRoom()
        self._mark_room = MarkRoom()
        self.makes_unknown = makes_unknown
        # Topics to which only one session may publish, or no session while the topic is dropped
        self._owners: dict[str, Session | None] = {}
        # The prefixes of the names of topics that must not be dropped now
        self._protected: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())

    def find(self, name: str, log: str | None = None) -> Topic:
        """Return a topic that exists, and whose log has the id `log` unless this is None.

        Raises Refusal ``unknown_topic``, ``busy`` while it is dropped.
        """
        self._check_stays(name)
        topic = self.by_name.get(name)
        if topic is None:
            raise Refusal("unknown_topic", f"there is no topic {name}")
        if log is not None and log != topic.log.id:
            raise Refusal("unknown_topic", f"{name} no longer has the log {log:.32}: it was dropped and made again")
        return topic

    def find_or_make(self, name: str) -> Topic:
        """Return a topic for a client. A missing topic is created if the broker's settings allow it; see `make`.

        Raises Refusal ``unknown_topic``.
        """
        if self.makes_unknown or name in self.by_name:
            return self.make(name)
        self._check_stays(name)
        raise Refusal("unknown_topic", f"there is no topic {name}; an administrator can make it: create {name}")

    def make(self, name: str) -> Topic:
        """Return a topic, creating it if it is missing. Raises Refusal ``disk``, ``too_many``, ``busy`` while it is dropped."""
        self._check_stays(name)
        topic = self.by_name.get(name)
        if topic is None:
            if len(self.by_name) >= TOPICS_MAX:
                raise Refusal("too_many", f"there are {TOPICS_MAX} topics")
            self.check_room()
            try:
                topic = self.open(name)
            except OSError as error:
                raise Refusal("disk", f"cannot make topic {name}: {why(error)}") from error
        return topic

    def open(self, name: str) -> Topic:
        """Return a topic, creating it if it is missing, even beyond the limit of topics. Raises OSError."""
        topic = self.by_name.get(name)
        if topic is None:
            log = self._logs.open(name)
            parts = log, self._memory, self._producer_room, self._dates
            topic = Topic(name, *parts, mark_room=self._mark_room, agenda=self._work.agenda)
            self.by_name[name] = topic
            self.visible[name] = topic.visible
            self._work.topics.add(topic)
            self.when_made(topic)
        return topic

    def skip_to(self, topic: Topic, offset: int) -> None:
        """Continue a topic at `offset`. Raises OSError."""
        topic.skip_to(offset)
        self.visible[topic.name] = topic.visible

    def check_room(self) -> None:
        """Raise Refusal ``disk`` while the disk is full, for a command that stores data. The remaining room is for acks."""
        if self.full_disk:
            raise Refusal("disk", f"{self.full_disk}; nothing was changed")

    def check_writer(self, session: Session, topic: str) -> None:
        """Raise Refusal ``forbidden`` if only the broker or another session writes to a topic, ``disk`` if no client may."""
        if topic in BROKER_TOPICS:
            raise Refusal("forbidden", f"{topic} is written by the broker alone")
        owner = self._owners.get(topic, session)
        if owner is None:
            raise _is_dropped(topic)
        if owner is not session:
            raise Refusal("forbidden", f"{topic} is written by {owner.name} alone")
        if self.fence:
            raise Refusal("disk", self.fence)

    def reserve(self, topic: str, session: Session) -> None:
        """Let only one session publish to a topic, until `unreserve`."""
        self._owners[topic] = session

    def unreserve(self, topic: str) -> None:
        """Let every client with the permission publish to a topic again."""
        self._owners.pop(topic, None)

    # Dropping

    def protect(self, prefix: str) -> None:
        """Refuse to drop topics whose name begins with `prefix`."""
        self._protected += (prefix,)

    def stays(self, topic: Topic) -> bool:
        """Whether a topic is neither dropped nor being dropped. A read of a topic that is dropped may find no file."""
        return self.by_name.get(topic.name) is topic and self._owners.get(topic.name, topic) is not None

    def begin_drop(self, topic: Topic) -> None:
        """Refuse all commands that need a topic, until `end_drop`. Raises Refusal ``forbidden``."""
        if topic.name in BROKER_TOPICS:
            raise Refusal("forbidden", f"{topic.name} is written by the broker; purge it instead")
        if topic.name in self._owners or topic.name.startswith(self._protected):
            raise Refusal("forbidden", f"a gateway of this broker uses {topic.name}; purge it instead")
        self._owners[topic.name] = None

    def end_drop(self, name: str) -> None:
        """Allow commands that need a topic, or make a new one with its name."""
        del self._owners[name]

    def remove(self, topic: Topic) -> None:
        """Forget a topic whose log was deleted."""
        del self.by_name[topic.name], self.visible[topic.name]
        topic.recent.forget()
        topic.schedule.forget()
        topic.producers.forget_all()
        topic.marks.forget_all()

    def keep_lost(self, names: Iterable[str]) -> None:
        """Note as dropped each of `names` that has no topic: its log was lost, or its drop was interrupted."""
        for name in set(names) - self.by_name.keys():
            self._work.keep(DroppedRecord(name))

    def _check_stays(self, name: str) -> None:
        if name in self._owners and self._owners[name] is None:
            raise _is_dropped(name)


def _is_dropped(name: str) -> Refusal:
    return Refusal("busy", f"{name} is being dropped; try again")
