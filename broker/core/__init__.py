"""The decisions of a broker: which client gets which event, when, and which events are settled.

Nothing here waits, opens a socket, reads a clock or logs. A call changes the state immediately, and leaves the I/O to do in
`Broker.work`: lines to send, batches to write, records to keep, old lines to fetch.
"""

from broker.core.access import EVERYTHING, NOTHING, Access
from broker.core.broker import Broker
from broker.core.counts import PartCounts
from broker.core.session import Session
from broker.core.topic.topic import Topic
from broker.core.work import Drop, Fetch, Job, Look, Reading, Task, Work

__all__ = [
    "EVERYTHING",
    "NOTHING",
    "Access",
    "Broker",
    "Drop",
    "Fetch",
    "Job",
    "Look",
    "PartCounts",
    "Reading",
    "Session",
    "Task",
    "Topic",
    "Work",
]
