"""The records of marks, see `broker.core.topic.marks`, and of the confirmations that wait for them."""

from typing import TypeAlias

from msgspec import Struct

from tweetwire.protocol.confirmation import Confirmation

__all__ = ["ConfirmRecord", "MarkRecord", "MarkedRecord", "UnmarkedRecord"]


class MarkedRecord(Struct, tag="marked", omit_defaults=True):
    """A mark that was made or moved.

    Another system has every event below `offset`, except those at the offsets `excepted`.

    In a journal, `excepted` has only the exceptions that are new; in a snapshot, it has all. `owners` are the users that own
    the mark.
    """

    topic: str
    name: str
    offset: int
    excepted: list[int] = []
    checkpoint: str | None = None
    owners: list[str] = []


class UnmarkedRecord(Struct, tag="unmarked"):
    """The end of a mark, which is forgotten."""

    topic: str
    name: str


class ConfirmRecord(Struct, tag="confirm"):
    """The marks that the confirmations of a topic wait for."""

    topic: str
    confirmation: Confirmation


MarkRecord: TypeAlias = MarkedRecord | UnmarkedRecord | ConfirmRecord
