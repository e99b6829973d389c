"""The messages between the ingester and a worker process: MessagePack with a length before each, over a socket pair.

A worker returns tweets and their authors' profiles as BSON, so that the writing process does not decode or build documents.
"""

import bson
import msgspec
from msgspec import Struct

from sse_ingest.found import Notice, Rejected
from sse_ingest.progress import UNTRACKED

__all__ = [
    "LENGTH",
    "Outcome",
    "RawEvent",
    "Reply",
    "ScoredTweet",
    "WorkerTask",
    "decode_reply",
    "decode_task",
    "frame",
]

LENGTH = 4
"""The form of the length before each message: a big-endian number."""


class RawEvent(Struct, array_like=True, gc=False):
    """An event as its source sent it: its type and its data, or the `fault` that makes it unusable.

    `data` should be UTF-8, but has not been checked. `number` is the event's number in the source's `Progress`.
    """

    data: bytes
    type: str = "message"
    fault: str | None = None
    number: int = UNTRACKED

    @property
    def text(self) -> str:
        """The data as text, with a replacement for bytes that are not UTF-8."""
        return self.data.decode("utf-8", "replace")


class WorkerTask(Struct, array_like=True):
    """Events that one worker converts to tweets and scores."""

    events: list[RawEvent]


class ScoredTweet(Struct, array_like=True, tag=0):
    """A tweet ready to be written. `document` is BSON; so is `profile`, which holds members of its author's document."""

    id: str
    user_id: str
    document: bytes
    profile: bytes
    engagement: float
    hashtags: list[str]

    @property
    def text(self) -> str:
        """The tweet's text, read from its document."""
        return str(bson.decode(self.document)["text"])


Outcome = ScoredTweet | Notice | Rejected


class Reply(Struct, array_like=True):
    """The outcomes of a task's events, in order. With a `failure`, the worker died on the event after the last outcome.

    `seconds` are the durations of the events, in order. `is_panic` is True if the event was the source's kill message.
    """

    outcomes: list[list[Outcome]]
    seconds: list[float]
    failure: str | None = None
    is_panic: bool = False


_encode_into = msgspec.msgpack.Encoder().encode_into
decode_task = msgspec.msgpack.Decoder(WorkerTask).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode


def frame(message: WorkerTask | Reply) -> bytes:
    """Return the bytes that carry `message`."""
    framed = bytearray(LENGTH)
    _encode_into(message, framed, LENGTH)
    framed[:LENGTH] = (len(framed) - LENGTH).to_bytes(LENGTH, "big")
    return bytes(framed)
