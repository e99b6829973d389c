"""The broker's half of the exactly-once handshakes, which follow the tables of `tweetwire.protocol.handshakes`.

Always true: a state is in the journal before a reply reports it. The newest finished handshakes of each client are remembered,
so that a client may repeat a step whose answer was lost.
"""

from broker.core.verbs.exactly_once.exactly_once import ExactlyOnce

__all__ = ["ExactlyOnce"]
