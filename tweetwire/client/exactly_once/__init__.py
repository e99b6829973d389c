"""The client's halves of the exactly-once handshakes: the spool on its disk, and the steps that it sends and repeats."""

from tweetwire.client.exactly_once.consuming import OnceConsuming
from tweetwire.client.exactly_once.publishing import OncePublishing
from tweetwire.client.exactly_once.spool import Spool

__all__ = ["OnceConsuming", "OncePublishing", "Spool"]
