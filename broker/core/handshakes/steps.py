"""What a step leads to, or how it is refused."""

from broker.errors import Refusal
from broker.protocol.handshakes import Half, Move, State, Step, move

__all__ = ["checked"]


def checked(half: Half, state: State, step: Step) -> Move:
    """Return what a step leads to. Raises Refusal where the table has no such step."""
    to = move(half, state, step)
    if to is None and half is Half.BROKER_PUBLISHING:
        raise Refusal("no_event", "nothing is held under that id; send it with pub2 first")
    if to is None:
        raise Refusal("stale", "nothing of that is in flight on this connection, or was taken by this client")
    return to
