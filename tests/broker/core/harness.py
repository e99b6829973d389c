"""Run a broker's core without sockets and disks: logs in memory, time as a number, restarts from the records that it kept."""

import msgspec

from broker.core import Broker, Drop, Fetch, Job, Look, Reading, Session, Task
from broker.core.steps import NEXT_TICK
from broker.journal.records import Record
from broker.log import MemoryLog
from tweetwire.protocol import parse_lines
from tweetwire.protocol.errors import Refusal

__all__ = ["Core"]


class MemoryLogs:
    """Logs that stay after a restart of the core."""

    def __init__(self) -> None:
        self.by_topic: dict[str, MemoryLog] = {}

    def open(self, topic: str) -> MemoryLog:
        return self.by_topic.setdefault(topic, MemoryLog())

    def drop(self, topic: str) -> None:
        del self.by_topic[topic]


class Core:
    """Types lines as sessions and carries out the work at once.

    `hold` keeps batches unwritten. `hold_drops`, `hold_fetches` and `hold_records` keep those things undone.
    """

    def __init__(self, *topics: str, now_ms: int = 1_000_000, makes_unknown: bool = True) -> None:
        self.now_ms = now_ms
        self.makes_unknown = makes_unknown
        self.logs = MemoryLogs()
        self.kept: list[Record] = []
        self.hold = False
        self.hold_drops = self.hold_fetches = self.hold_records = False
        self.drops: list[Drop] = []
        self.fetches: list[Fetch | Look] = []
        self.fail_drops_with: str | None = None
        self.fail_with: str | None = None
        self.bugs: list[BaseException] = []
        self._open(["dead_letters", *topics])

    def _open(self, topics: list[str]) -> None:
        self.broker = Broker(
            self.logs, version="test", promise="synced", recent_bytes=1 << 20, makes_unknown=self.makes_unknown
        )
        for topic in topics:
            self.broker.topic(topic)
        self.broker.restore(self.kept, self.now_ms)
        self.carry_out()

    def restart(self, *, is_folded: bool = False) -> None:
        """Start a new core from the logs and the records, as after a SIGKILL."""
        if is_folded:
            self.kept = self.broker.records()
        self.kept = msgspec.json.decode(msgspec.json.encode(self.kept), type=list[Record])
        for log in self.logs.by_topic.values():
            log.hidden_below = 0
        self._open(list(self.logs.by_topic))

    def connect(self) -> Session:
        session = self.broker.connect("test:1")
        session.take_output()
        return session

    def type(self, session: Session, *lines: str) -> list[str]:
        """Send lines and return all lines that the session received."""
        for command in parse_lines([line.encode() for line in lines], 1 << 20):
            if isinstance(command, Refusal):
                self.broker.refuse(session, command, self.now_ms)
            else:
                self.broker.execute(session, command, self.now_ms)
            if session.jobs:
                self.carry_out()
        self.carry_out()
        return self.receive(session)

    def publish(self, *ids: str, topic: str = "t", priority: int = 0) -> None:
        """Publish one event for each id, with the id as its message, from a session that then ends."""
        session = self.connect()
        lines = (f'pub {topic} {{"id":"{id_}","priority":{priority},"msg":"{id_}"}}' for id_ in ids)
        replies = self.type(session, *lines)
        assert all(reply.startswith("+OK pub ") for reply in replies), replies
        self.disconnect(session)

    def receive(self, session: Session) -> list[str]:
        """Return the output of a session, and count it as sent."""
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
        """Advance the time in the steps in which a server would tick."""
        end = self.now_ms + round(seconds * 1000)
        while self.now_ms < end:
            self.now_ms = min(end, self.now_ms + 100)
            self.broker.tick(self.now_ms)
            self.carry_out()

    def carry_out(self) -> None:
        """Write batches, keep records and fetch lines, until no work is left."""
        while True:
            work = self.broker.work
            has_more = bool(work.records or work.topics or work.tasks)
            self.kept += work.take_records()[0]
            self.bugs += work.bugs
            work.bugs, work.topics = [], set()
            if not self.hold_records:
                self.broker.note_records_synced(work.records_kept)
            for task in work.take_tasks():
                self._begin(task)
            while self.fetches and not self.hold_fetches:
                has_more = True
                fetch = self.fetches.pop(0)
                self.broker.fetched(fetch, fetch.topic.read_lines(fetch.offsets), self.now_ms)
            while self.drops and not self.hold_drops:
                has_more = True
                self._drop(self.drops.pop(0))
            if not self.hold:
                for topic in list(self.broker.topics.values()):
                    self._write(topic.name)
            if not has_more:
                return

    def _begin(self, task: Task) -> None:
        match task:
            case Fetch() | Look():
                self.fetches.append(task)
            case Drop():
                self.drops.append(task)
            case Reading():
                lines, after, _ = task.topic.log.read(task.first, task.count, task.bytes_max)
                self.broker.has_read(task, lines, after, 0)
            case Job():
                self._work_on(task)

    def _drop(self, drop: Drop) -> None:
        while drop.topic.has_pending:
            self._write(drop.topic.name)
        if self.fail_drops_with is not None:
            self.broker.has_failed(drop, Refusal("disk", self.fail_drops_with))
            return
        self.logs.drop(drop.topic.name)
        for _ in self.broker.has_dropped(drop):
            pass

    def _work_on(self, job: Job) -> None:
        """Run all steps of a job at once."""
        value = None
        try:
            while True:
                step = job.steps.send(value)
                value = step(job.interrupt) if callable(step) else None
                if step is NEXT_TICK:
                    self.broker._desk.ticks += 1
        except StopIteration as end:
            self.broker.has_done(job, end.value, self.now_ms)
        except Refusal as refusal:
            self.broker.has_failed(job, refusal)
        finally:
            job.steps.close()

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
