"""One step of a handshake, said until it is answered or `TRIES` were in vain."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from broker.errors import HandshakeFailed, Refusal
from broker.protocol.handshakes import Half, Move, State, Step, move

__all__ = ["Ask", "moved", "say"]

Ask = Callable[[bytes], Awaitable[bytes]]
"""Sends a line, again on a new connection where one is lost, and returns the reply. Raises Refusal."""

TRIES: Final = 5
PAUSES_S: Final = (0.0, 0.2, 0.4, 0.8, 1.6)


async def say(ask: Ask, line: bytes, answer_s: float) -> bytes:
    """Say a step and return its reply; each try waits `answer_s` seconds, a connection being made included.

    Raises Refusal where the broker refuses for good, HandshakeFailed after `TRIES`.
    """
    why = ""
    for pause_s in PAUSES_S:
        await anyio.sleep(pause_s)
        try:
            with anyio.fail_after(answer_s):
                return await ask(line)
        except TimeoutError:
            why = f"no answer within {answer_s:g} s"
        except Refusal as refusal:
            if not refusal.is_retryable:
                raise
            why = str(refusal)
    verb, topic, *_ = line.split(b" ", 2)
    raise HandshakeFailed(f"{verb.decode()} {topic.decode()}", TRIES, why)


def moved(half: Half, state: State, step: Step) -> Move:
    """Return what the table has for a step that must be there."""
    to = move(half, state, step)
    if to is None:
        raise RuntimeError(f"{half.name} has no step {step.name} in {state.name}")
    return to
