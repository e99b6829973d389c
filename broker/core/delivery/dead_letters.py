"""Make the dead letter of an event that the broker gives up."""

from typing import Final

import msgspec
from msgspec import Raw, Struct

from tweetwire.protocol.events import IncomingEvent
from tweetwire.protocol.failures import Attempts, Failure

__all__ = ["DEAD_LETTERS", "dead_letter"]

DEAD_LETTERS: Final = "dead_letters"


class _Letter(Struct):
    topic: str
    offset: int
    subscription: str
    tries: int
    first_at: int
    last_at: int
    event: Raw
    errors: tuple[Failure, ...]


def dead_letter(topic: str, offset: int, subscription: str, attempts: Attempts, line: bytes | None) -> IncomingEvent:
    """Return the event that reports a death. `line` is the stored event, None if it can no longer be read."""
    letter = _Letter(
        topic,
        offset,
        subscription,
        attempts.count,
        attempts.first_at,
        attempts.errors[-1].at,
        Raw(b"null" if line is None else line.rstrip(b"\n")),
        attempts.errors,
    )
    return IncomingEvent(id=f"{topic}@{offset}", key=subscription, msg=Raw(msgspec.json.encode(letter)))
