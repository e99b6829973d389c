"""Look up handshake steps in their table, and refuse the steps that it does not have."""

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.handshakes import Half, Move, State, Step, move

__all__ = ["checked"]


def checked(half: Half, state: State, step: Step) -> Move:
    """Return the result of a step. Raises Refusal if the table has no such step."""
    to = move(half, state, step)
    if to is None and half is Half.BROKER_PUBLISHING:
        raise Refusal("no_event", "no message is held under that id; send it with pub2 first")
    if to is None:
        raise Refusal("stale", "no such event is in flight on this connection, or was taken by this client")
    return to
