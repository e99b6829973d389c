"""The replies about marks, and the values made from them."""

import msgspec
from msgspec import Struct

from tweetwire.protocol.replies import _json, _reading

__all__ = ["MarkInfo", "marked_at", "marks_answer"]


class MarkInfo(Struct, frozen=True):
    """A mark of a topic: every event below `offset` is done elsewhere.

    Attributes:
        lag: Number of events at or above the mark that the log has.
        excepted: Offsets below the mark whose events are not done.
        checkpoint: The text that was stored with the mark, or None.
        overtaken: Number of events above the mark that retention or a purge has removed since the broker's start.
        owners: The users that may move or forget the mark, besides administrators. With none, each user who may read may.
    """

    name: str
    offset: int
    lag: int
    excepted: tuple[int, ...] = ()
    checkpoint: str | None = None
    overtaken: int = 0
    owners: tuple[str, ...] = ()


@_reading
def marked_at(line: bytes) -> int:
    """Read the offset from ``+OK mark <topic> <name> @<offset>``."""
    return int(line.split(b" ")[4].removeprefix(b"@"))


@_reading
def marks_answer(reply: bytes) -> list[MarkInfo]:
    """Read ``+OK marks <topic> <json>``."""
    return msgspec.json.decode(_json(reply, 3), type=list[MarkInfo])
