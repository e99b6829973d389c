"""The client's halves of the exactly-once handshakes: what it keeps on its own disk, and the steps it says and repeats."""

from broker.handshakes.consuming import ExactlyOnceSubscription
from broker.handshakes.publishing import Publishing
from broker.handshakes.spool import Spool

__all__ = ["ExactlyOnceSubscription", "Publishing", "Spool"]
