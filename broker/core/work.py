"""The I/O that the core's decisions leave to do, for the code that has files and sockets."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from broker.core.places import Answer
from broker.core.session import Session
from broker.core.steps import Interrupt, Outcome, Steps
from broker.core.topic.schedule import Agenda
from broker.core.topic.subscription import Consumer, Recipient, Subscription
from broker.core.topic.topic import Topic
from broker.journal.records import Record

__all__ = ["Drop", "Fetch", "Job", "Look", "Reading", "Task", "Work"]


@dataclass(slots=True)
class Fetch:
    """Lines of events in flight that are no longer in memory: read them in a thread, then call `Broker.fetched`."""

    topic: Topic
    consumer: Consumer
    offsets: list[int]


@dataclass(slots=True)
class Look:
    """Taken events of an ordered subscription whose keys are not known: read their lines as those of a `Fetch`."""

    topic: Topic
    subscription: Subscription
    offsets: list[int]


@dataclass(slots=True)
class Reading:
    """A ``read`` of up to `count` lines of about `bytes_max` bytes from offset `first`. The reply goes into `answer`.

    `when_done` is called once the reply is made, for a read that has waited for its first line.
    """

    session: Session
    topic: Topic
    first: int
    count: int
    bytes_max: int
    answer: Answer
    when_done: Callable[[], None] | None = None


@dataclass(slots=True, eq=False)
class Job:
    """The `steps` that make a reply, see `broker.core.steps`. Call `Broker.has_done` at their end.

    The reply goes into `answer`. If the job `is_awaited`, the session's next command is carried out only after it is
    done. A job ends with its session, unless it `outlives` the session.
    """

    session: Session
    steps: Steps[Outcome]
    answer: Answer
    is_awaited: bool
    outlives: bool = False
    interrupt: Interrupt = field(default_factory=Interrupt)


@dataclass(slots=True, eq=False)
class Drop:
    """A topic to delete. The reply goes into `answer`. The session's next command is carried out after it.

    Wait until the topic's writer is idle, and set the log aside. Then carry out the steps of `Broker.has_dropped`, or call
    `Broker.has_failed`. This must continue when the session ends.
    """

    is_awaited: ClassVar = True

    session: Session
    topic: Topic
    answer: Answer


Task: TypeAlias = Fetch | Look | Reading | Job | Drop
"""Work that takes a while, so it needs a task of the event loop."""


@dataclass(slots=True)
class Work:
    """The I/O to do: give `records` to the journal, wake the writers of `topics`, begin `tasks`, and send for `sessions`.

    The code that does a part of the work takes it out first, so that the core can leave more meanwhile.
    """

    records: list[Record] = field(default_factory=list)
    topics: set[Topic] = field(default_factory=set)
    tasks: list[Task] = field(default_factory=list)
    sessions: set[Recipient] = field(default_factory=set)
    # The topics with events that are not due yet
    agenda: Agenda = field(default_factory=Agenda)
    # Unexpected exceptions to log; their commands were answered with `internal`
    bugs: list[BaseException] = field(default_factory=list)
    # Whether a reply waits for a record that is not on the disk
    must_sync_records: bool = False
    records_kept: int = 0

    def keep(self, record: Record) -> int:
        """Leave a record for the journal. Return its number, counted since the broker's start."""
        self.records.append(record)
        self.records_kept += 1
        return self.records_kept

    def take_records(self) -> tuple[list[Record], bool]:
        """Take out the records left so far, and return them with whether a reply waits for them."""
        left, must_sync = self.records, self.must_sync_records
        self.records, self.must_sync_records = [], False
        return left, must_sync

    def take_tasks(self) -> list[Task]:
        """Take out the tasks left so far, and return them."""
        left, self.tasks = self.tasks, []
        return left
