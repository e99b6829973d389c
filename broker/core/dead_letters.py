"""The letter that is written about an event given up on, and where it lies."""

from typing import Final

import msgspec
from msgspec import Raw, Struct

from broker.errors import Refusal
from broker.events import IncomingEvent
from broker.failures import Attempts, Failure

__all__ = ["DEAD_LETTERS", "REJECTED_BYTES_MAX", "REJECTED_LINES", "dead_letter", "rejected_line"]

DEAD_LETTERS: Final = "dead_letters"
REJECTED_LINES: Final = "rejected_lines"
REJECTED_BYTES_MAX: Final = 4096


class _Letter(Struct):
    topic: str
    offset: int
    subscription: str
    tries: int
    first_at: int
    last_at: int
    event: Raw
    errors: tuple[Failure, ...]


class _Rejected(Struct):
    line: str
    code: str
    text: str
    client: str


def dead_letter(topic: str, offset: int, subscription: str, attempts: Attempts, line: bytes | None) -> IncomingEvent:
    """Return the event that tells of a death; `line` is the stored event, None where it cannot be read any more."""
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


def rejected_line(line: bytes, refusal: Refusal, client: str, number: int) -> IncomingEvent:
    """Return the event that keeps a line which was refused, cut to its first 4 KiB."""
    text = line[:REJECTED_BYTES_MAX].decode("utf-8", "replace")
    return IncomingEvent(
        id=f"rejected-{number}", msg=Raw(msgspec.json.encode(_Rejected(text, refusal.code, refusal.text, client)))
    )
