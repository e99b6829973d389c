"""The broker's halves of the exactly-once handshakes, as `protocol.handshakes` has them.

Always true: a state that a reply tells of is in the journal first. What is finished is remembered for a while, the newest of
each client, so that a step whose answer was lost may be repeated.
"""

from broker.core.handshakes.handshakes import Handshakes

__all__ = ["Handshakes"]
