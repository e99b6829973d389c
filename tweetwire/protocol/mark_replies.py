"""The replies about marks and confirmations, and the values made from them."""

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from tweetwire.protocol.confirmation import Confirmation, read_confirmation_change
from tweetwire.protocol.errors import BrokerError, Refusal
from tweetwire.protocol.options import Options
from tweetwire.protocol.replies import Receipt, _json, _reading

__all__ = ["MarkInfo", "Promise", "PromiseNotKept", "confirmation_answer", "kept", "marked_at", "marks_answer"]

Promise: TypeAlias = Literal["replicated"]
"""A promise that a publisher may ask for."""


class PromiseNotKept(BrokerError):
    """The broker stored an event, but its confirmation has a lesser promise than the publisher asked for.

    The marks had not passed the event in time, or one of them excepts it. It may still be replicated later.

    Attributes:
        receipt: The confirmation.
    """

    def __init__(self, wanted: str, receipt: Receipt) -> None:
        got = receipt.durability or "stored before"
        super().__init__(f"the event @{receipt.first} of {receipt.topic} is {got}, and was not {wanted} in time")
        self.receipt = receipt


class MarkInfo(Struct, frozen=True):
    """A mark of a topic: another system has every event below `offset`.

    Attributes:
        lag: Number of events at or above the mark that the log has.
        excepted: Offsets below the mark whose events the other system does not have.
        checkpoint: The text that was stored with the mark, or None.
        overtaken: Number of events above the mark that retention or a purge has removed since the broker's start.
        owners: The users that may move or forget the mark, besides administrators. If there are none, each user who may read
            the topic may do so.
    """

    name: str
    offset: int
    lag: int
    excepted: tuple[int, ...] = ()
    checkpoint: str | None = None
    overtaken: int = 0
    owners: tuple[str, ...] = ()


def kept(receipt: Receipt, promise: Promise | None) -> Receipt:
    """Return a confirmation. Raises PromiseNotKept if it has a lesser promise than `promise`."""
    if promise is not None and receipt.durability != promise:
        raise PromiseNotKept(promise, receipt)
    return receipt


@_reading
def confirmation_answer(line: bytes) -> Confirmation:
    """Read ``+OK confirm <topic> after=… within=…``."""
    try:
        change = read_confirmation_change(Options(line.decode().split()[3:]))
    except Refusal as refusal:
        raise ValueError(refusal.text) from None
    if change is None:
        raise ValueError("it has no after and no within")
    return Confirmation().changed(change)


@_reading
def marked_at(line: bytes) -> int:
    """Read the offset from ``+OK mark <topic> <name> @<offset>``."""
    return int(line.split(b" ")[4].removeprefix(b"@"))


@_reading
def marks_answer(reply: bytes) -> list[MarkInfo]:
    """Read ``+OK marks <topic> <json>``."""
    return msgspec.json.decode(_json(reply, 3), type=list[MarkInfo])
