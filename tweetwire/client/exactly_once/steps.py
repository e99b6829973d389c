"""The requests of a handshake to its shell, and the repetition of its steps.

A handshake is a generator without I/O. It yields requests, which its shell carries out with or without an event loop. After an
`Ask`, the shell sends the answers into the generator; after any other request, it sends an empty list. The generator's return
value is the result of the handshake.
"""

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

from tweetwire.protocol.errors import HandshakeFailed, Refusal
from tweetwire.protocol.handshakes import Half, Move, State, Step, move

__all__ = ["TOGETHER", "Answer", "Ask", "Handshake", "Pause", "Said", "Sync", "Wish", "moved", "say_all"]

PAUSES_S: Final = (0.0, 0.2, 0.4, 0.8, 1.6)
"""The pauses before each try of a step, in seconds."""
TRIES: Final = len(PAUSES_S)
TOGETHER: Final = 500
"""The most messages in one handshake, which share the syncs of the disk. The broker remembers more finished ones than this."""


class Ask(NamedTuple):
    """Send lines together, again on a new connection if one is lost. The answers are in the order of the lines."""

    lines: list[bytes]


class Sync(NamedTuple):
    """Wait until all states written to the spool are on the disk."""


class Pause(NamedTuple):
    """Wait for some seconds."""

    seconds: float


Answer: TypeAlias = bytes | Refusal | TimeoutError
"""The answer to a line. A TimeoutError means that none came in time, and its text says so."""

Said: TypeAlias = bytes | Refusal | HandshakeFailed
"""The result of a step."""

Wish: TypeAlias = Ask | Sync | Pause

T = TypeVar("T")
Handshake: TypeAlias = Generator[Wish, list[Answer], T]


def say_all(lines: Sequence[bytes]) -> Handshake[list[Said]]:
    """Send steps until each is answered or permanently refused, or has failed `TRIES` times. Returns their results."""
    said: dict[int, Said] = {}
    for number, pause_s in enumerate(PAUSES_S, 1):
        left = [place for place in range(len(lines)) if place not in said]
        if not left:
            break
        if pause_s:
            yield Pause(pause_s)
        answers = yield Ask([lines[place] for place in left])
        for place, answer in zip(left, answers, strict=True):
            if isinstance(answer, bytes) or (isinstance(answer, Refusal) and not answer.is_retryable):
                said[place] = answer
            elif number == TRIES:
                verb, topic, *_ = lines[place].decode().split(" ", 2)
                said[place] = HandshakeFailed(f"{verb} {topic}", TRIES, str(answer))
    return [said[place] for place in range(len(lines))]


def moved(half: Half, state: State, step: Step) -> Move:
    """Return the table's entry for a step. Raises RuntimeError if the table has none."""
    to = move(half, state, step)
    if to is None:
        raise RuntimeError(f"{half.name} has no step {step.name} in {state.name}")
    return to
