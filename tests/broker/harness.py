"""A broker's core without sockets and disks: logs in memory, time as a number, restarts from the records it kept."""

import msgspec

from broker.core import Broker, Session
from broker.core.restoration import restore
from broker.errors import Refusal
from broker.log import MemoryLog
from broker.protocol import parse_lines
from broker.state import Record

__all__ = ["Core"]


class MemoryLogs:
    """Logs that outlive the broker that opened them."""

    def __init__(self) -> None:
        self.by_topic: dict[str, MemoryLog] = {}

    def open(self, topic: str) -> MemoryLog:
        return self.by_topic.setdefault(topic, MemoryLog())


class Core:
    """Types lines as sessions and carries the work out at once; `hold` keeps batches unwritten."""

    def __init__(self, *topics: str, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms
        self.logs = MemoryLogs()
        self.kept: list[Record] = []
        self.hold = False
        self.fail_with: str | None = None
        self._open(["dead_letters", *topics])

    def _open(self, topics: list[str]) -> None:
        self.broker = Broker(self.logs, version="test", promise="synced", recent_bytes=1 << 20)
        for topic in topics:
            self.broker.topic(topic)
        restore(self.broker, self.kept)
        self.carry_out()

    def restart(self, *, is_folded: bool = False) -> None:
        """Begin again from the logs and the records, as after a SIGKILL."""
        if is_folded:
            self.kept = self.broker.records()
        self.kept = msgspec.json.decode(msgspec.json.encode(self.kept), type=list[Record])
        self._open(list(self.logs.by_topic))

    def connect(self) -> Session:
        session = self.broker.connect("test:1")
        session.take_output()
        return session

    def type(self, session: Session, *lines: str) -> list[str]:
        """Type lines and return everything that came."""
        for command in parse_lines([line.encode() for line in lines], 1 << 20):
            if isinstance(command, Refusal):
                self.broker.refuse(session, command, self.now_ms)
            else:
                self.broker.execute(session, command, self.now_ms)
        self.carry_out()
        return self.receive(session)

    def receive(self, session: Session) -> list[str]:
        """Return what is to be sent to a session, as if it left at once."""
        received: list[str] = []
        while data := session.take_output():
            received += data.decode().splitlines()
            self.broker.sent(session, self.now_ms)
            self.carry_out()
        return received

    def disconnect(self, session: Session) -> None:
        self.broker.disconnect(session, self.now_ms)
        self.carry_out()

    def pass_time(self, seconds: float) -> None:
        """Let time pass in the steps in which a server would tick."""
        end = self.now_ms + round(seconds * 1000)
        while self.now_ms < end:
            self.now_ms = min(end, self.now_ms + 100)
            self.broker.tick(self.now_ms)
            self.carry_out()

    def carry_out(self) -> None:
        """Write batches, keep records, fetch lines, until nothing is left to do."""
        while True:
            work = self.broker.work.take()
            self.kept += work.records
            self.broker.records_synced(work.records_kept)
            for fetch in work.fetches:
                topic = self.broker.topics[fetch.consumer.subscription.topic]
                self.broker.fetched(fetch, topic.read_lines(fetch.offsets), self.now_ms)
            for reading in work.readings:
                lines, after, _ = reading.topic.log.read(reading.first, reading.count, reading.bytes_max)
                self.broker.has_read(reading, lines, after, 0)
            for lookup in work.lookups:
                self.broker.has_looked_up(lookup, lookup.look_up())
            if not self.hold:
                for topic in list(self.broker.topics.values()):
                    self._write(topic.name)
            if not (work.records or work.topics or work.fetches or work.readings or work.lookups):
                return

    def _write(self, name: str) -> None:
        topic = self.broker.topics[name]
        if topic.has_pending:
            batch = topic.begin_write()
            if self.fail_with is not None:
                self.broker.not_committed(topic, self.fail_with, self.now_ms)
            else:
                topic.log.append(batch)
                self.broker.committed(topic, batch, self.now_ms)
            self.broker.work.topics.add(topic)
