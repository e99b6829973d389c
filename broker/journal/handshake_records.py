"""The records of exactly-once handshakes that are open, or that finished a short time ago."""

from typing import TypeAlias

from msgspec import Struct

__all__ = ["FinishedRecord", "HandshakeRecord", "HeldRecord", "ReleasedRecord", "TakenRecord"]


class HeldRecord(Struct, tag="held"):
    """A message that the broker holds until its client releases it. `event` is the message's JSON."""

    client: str
    topic: str
    event: str


class ReleasedRecord(Struct, tag="released"):
    """A held message that was released and goes to `offset` of its log.

    If `is_stored` is not set, a start reads the log to find out whether the event was stored.
    """

    client: str
    topic: str
    id: str
    offset: int
    is_stored: bool = False


class TakenRecord(Struct, tag="taken"):
    """An event that a client has stored on its disk. The broker never delivers it again."""

    client: str
    topic: str
    name: str
    offset: int
    id: str


class FinishedRecord(Struct, tag="finished"):
    """The end of a handshake: the client has processed an event that it had taken."""

    client: str
    topic: str
    name: str
    offset: int


HandshakeRecord: TypeAlias = HeldRecord | ReleasedRecord | TakenRecord | FinishedRecord
