"""Reading: a part of a topic's log, without a subscription. A read at the end of the log may wait for the next event."""

from broker.core.desk import Desk
from broker.core.session import Session
from broker.core.verbs.finding import start_offset
from broker.core.verbs.handler import Handlers
from broker.core.waiting_reads import WaitingReads
from tweetwire.protocol.verbs import reading as commands

__all__ = ["ReadingVerbs"]


class ReadingVerbs:
    """Replies with lines of a log, which a thread reads."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.waiting = WaitingReads(desk)
        self.handlers: Handlers = {commands.Read: self.read}

    def read(self, session: Session, command: commands.Read, now_ms: int) -> None:
        """Begin to read visible events from a position on."""
        topic = self._desk.topics.find(command.topic, command.log)
        start = min(start_offset(topic, command.start, now_ms), topic.visible)
        count = min(command.limit, topic.visible - start)
        if command.wait_ms and topic.nearest_place(start) == topic.visible:
            self.waiting.add(session, topic, command.limit, command.bytes_max, now_ms + command.wait_ms)
            return
        self._desk.begin_reading(session, topic, start, count, command.bytes_max)
