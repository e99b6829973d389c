"""A topic's log: segments of JSON Lines with an index beside each. This package handles files only."""

from broker.log.batch import Batch
from broker.log.commit_log import CommitLog, Recovery
from broker.log.damage import Damage
from broker.log.memory import MemoryLog
from broker.log.open_files import OpenFiles
from broker.log.reserve import NO_ROOM, Reserve
from broker.log.retention import Span, first_kept
from broker.log.stretch import Stretch
from broker.log.topic_log import TopicLog

__all__ = [
    "NO_ROOM",
    "Batch",
    "CommitLog",
    "Damage",
    "MemoryLog",
    "OpenFiles",
    "Recovery",
    "Reserve",
    "Span",
    "Stretch",
    "TopicLog",
    "first_kept",
]
