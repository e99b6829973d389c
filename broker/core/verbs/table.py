"""All commands and their handlers."""

from collections.abc import Callable

from broker.core.delivery.delivery import Delivery
from broker.core.desk import Desk
from broker.core.sessions import Sessions
from broker.core.topic.topic import Topic
from broker.core.verbs.claiming import Claiming
from broker.core.verbs.documenting import Documenting
from broker.core.verbs.exactly_once import ExactlyOnce
from broker.core.verbs.handler import Handlers
from broker.core.verbs.marking import Marking
from broker.core.verbs.patterns import PatternSubscribing
from broker.core.verbs.publishing import Publishing
from broker.core.verbs.reading import ReadingVerbs
from broker.core.verbs.references import References
from broker.core.verbs.reporting import Reporting
from broker.core.verbs.requesting import Requesting
from broker.core.verbs.session import SessionVerbs
from broker.core.verbs.settling import Settling
from broker.core.verbs.state import StateVerbs
from broker.core.verbs.steering import Steering
from broker.core.verbs.subscribing import Subscribing
from broker.core.verbs.topics import TopicVerbs
from broker.journal.records import Record
from broker.log import Batch
from tweetwire.protocol.errors import Refusal

__all__ = ["Verbs"]


class Verbs:
    """The families of handlers. Add a new command to its family, and a new family to this class."""

    def __init__(self, desk: Desk, delivery: Delivery, sessions: Sessions, records: Callable[[], list[Record]]) -> None:
        """Make the handlers. `records` returns everything that the journal keeps."""
        self._desk = desk
        references = References(desk)
        self.exactly_once = ExactlyOnce(desk, delivery, references)
        self.requesting = Requesting(desk)
        self.publishing = Publishing(desk, self.requesting)
        self.claiming = Claiming(desk)
        self.patterns = PatternSubscribing(desk, delivery, sessions, self.exactly_once)
        self.reporting = Reporting(desk, sessions, self.patterns.table, self.exactly_once.report)
        self.subscribing = Subscribing(desk, delivery, sessions, self.exactly_once, self.patterns)
        documenting = Documenting(desk)
        self.reading = ReadingVerbs(desk)
        self.topics = TopicVerbs(desk, sessions, self.subscribing, documenting, self.exactly_once, reading=self.reading)
        self.handlers: Handlers = {
            **self.publishing.handlers,
            **self.claiming.handlers,
            **self.requesting.handlers,
            **Settling(desk, delivery, references).handlers,
            **self.subscribing.handlers,
            **self.patterns.handlers,
            **self.reading.handlers,
            **Marking(desk).handlers,
            **self.reporting.handlers,
            **StateVerbs(desk, records).handlers,
            **documenting.handlers,
            **self.topics.handlers,
            **Steering(desk, delivery, self.exactly_once).handlers,
            **self.exactly_once.handlers,
            **SessionVerbs(desk, self.subscribing).handlers,
        }

    def note_stored(self, topic: Topic, batch: Batch) -> None:
        """Send the replies that waited for a write to the log of a topic, and continue the handshakes that waited for it."""
        self.exactly_once.note_written(topic)
        self._desk.confirm_stored(topic)
        self.reading.waiting.note_visible(topic)
        self.requesting.note_stored(topic, batch)

    def note_unstored(self, topic: Topic, refusal: Refusal) -> None:
        """Refuse the events that the log of a topic does not have."""
        self.exactly_once.note_unwritten(topic)
        self.requesting.note_unstored(topic)
        self._desk.refuse_unstored(topic, refusal)
