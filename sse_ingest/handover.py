"""What goes to a worker process and comes back: length-prefixed MessagePack over a socket pair.

Tweets and their authors' profiles come back as BSON, so that the process that writes neither decodes nor builds their
documents.
"""

import bson
import msgspec
from msgspec import Struct

from sse_ingest.progress import UNTRACKED

__all__ = [
    "LENGTH",
    "Finding",
    "NoticeFound",
    "RawEvent",
    "Rejected",
    "Reply",
    "Scored",
    "Task",
    "decode_reply",
    "decode_task",
    "frame",
]

LENGTH = 4
"""Bytes of the big-endian length before each message."""


class RawEvent(Struct, array_like=True, gc=False):
    """An event as its source sent it: its type and its data, or why it cannot be used at all.

    `data` should be UTF-8, and nobody has looked whether it is. `number` is its place in the source's `Progress`.
    """

    data: bytes
    type: str = "message"
    fault: str | None = None
    number: int = UNTRACKED

    @property
    def text(self) -> str:
        """Its data as text, whatever was sent."""
        return self.data.decode("utf-8", "replace")


class Task(Struct, array_like=True):
    """Events for one worker to unwrap and score."""

    events: list[RawEvent]


class Scored(Struct, array_like=True, tag=0):
    """A tweet ready to be written; `document` is BSON, and so is `profile`, the members of its author's document."""

    id: str
    user_id: str
    document: bytes
    profile: bytes
    engagement: float
    hashtags: list[str]

    @property
    def text(self) -> str:
        """The tweet's text, which is looked for in its document."""
        return str(bson.decode(self.document)["text"])


class NoticeFound(Struct, array_like=True, tag=1):
    """No tweet, and not meant to be one."""

    name: str


class Rejected(Struct, array_like=True, tag=2):
    """What cannot be used, and why; `raw` None stands for the event's whole text."""

    error: str
    raw: str | None = None


Finding = Scored | NoticeFound | Rejected


class Reply(Struct, array_like=True):
    """The findings of a task's events in order. With a `failure` the worker has died on the event after the last one.

    `seconds` are the times that the events took, in order.
    """

    findings: list[list[Finding]]
    seconds: list[float]
    failure: str | None = None


_encode_into = msgspec.msgpack.Encoder().encode_into
decode_task = msgspec.msgpack.Decoder(Task).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode


def frame(message: Task | Reply) -> bytes:
    """Return the bytes that carry `message`."""
    framed = bytearray(LENGTH)
    _encode_into(message, framed, LENGTH)
    framed[:LENGTH] = (len(framed) - LENGTH).to_bytes(LENGTH, "big")
    return bytes(framed)
