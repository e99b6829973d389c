"""What a broker decides: who gets which event, when, and what is settled.

Nothing here waits, opens a socket, reads a clock or logs. A call changes the state and leaves the work to do in
`Broker.work`: lines to send, batches to write, records to keep, old lines to fetch. So each decision is whole.
"""

from broker.core.access import EVERYTHING, NOTHING, Access
from broker.core.broker import Broker
from broker.core.consumer import Consumer
from broker.core.session import Session
from broker.core.topic import Topic
from broker.core.work import Fetch, Lookup, Reading, Work

__all__ = [
    "EVERYTHING",
    "NOTHING",
    "Access",
    "Broker",
    "Consumer",
    "Fetch",
    "Lookup",
    "Reading",
    "Session",
    "Topic",
    "Work",
]
