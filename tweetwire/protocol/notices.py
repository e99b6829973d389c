"""Notices: lines that the broker sends without a command. Their first byte is ``!``.

The broker sends ``!ended <topic> as=<subscription> <reason>`` to a connection that loses a subscription. To one that waits for
the reply to a request, it sends ``!reply <topic> <offset> <event>`` or ``!timeout <topic> <offset> <id>``. A client ignores
notices that it does not know, so that a newer broker can send other ones.
"""

from typing import Final, NamedTuple

import msgspec

from tweetwire.protocol.errors import ProtocolError
from tweetwire.protocol.events import StoredEvent, decode_stored

__all__ = ["NOTICE", "Ended", "Replied", "ended_line", "read_ended", "read_replied", "reply_line", "timeout_line"]

NOTICE: Final = b"!"
_ENDED_WORDS: Final = 4
_REPLY_WORDS: Final = 4


class Ended(NamedTuple):
    """The content of ``!ended``: the connection no longer has subscription `name` of `topic`, for `reason`."""

    topic: str
    name: str
    reason: str


class Replied(NamedTuple):
    """The end of a wait for a reply: the id of the request, and the reply, or None if there was none in time."""

    id: str
    event: StoredEvent | None


def ended_line(ended: Ended) -> bytes:
    """Return the line of the notice, with its end. White space in the reason becomes single spaces, so the line is one."""
    reason = " ".join(ended.reason.split())
    return f"!ended {ended.topic} as={ended.name} {reason}\n".encode("utf-8", "backslashreplace")


def read_ended(line: bytes) -> Ended | None:
    """Read a notice without its line end. Return None if it is not an ``!ended``."""
    words = line.decode(errors="replace").split(" ", _ENDED_WORDS - 1)
    if words[0] != "!ended" or len(words) < _ENDED_WORDS:
        return None
    _, topic, name, reason = words
    return Ended(topic, name.removeprefix("as="), reason)


def reply_line(topic: str, offset: int, line: bytes) -> bytes:
    """Return the notice that brings the reply to the request at `offset`. `line` is the stored reply, with its line end."""
    return b"!reply %b %d %b" % (topic.encode(), offset, line)


def timeout_line(topic: str, offset: int, id_: str) -> bytes:
    """Return the notice that the request at `offset` got no reply in time."""
    return b"!timeout %b %d %b\n" % (topic.encode(), offset, msgspec.json.encode(id_))


def read_replied(line: bytes) -> Replied | None:
    """Read a notice without its line end. Return None if it does not end the wait for a reply. Raises ProtocolError."""
    if not line.startswith((b"!reply ", b"!timeout ")):
        return None
    words = line.split(b" ", _REPLY_WORDS - 1)
    try:
        if words[0] == b"!timeout":
            return Replied(msgspec.json.decode(words[-1], type=str), None)
        event: StoredEvent = decode_stored(words[-1])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ProtocolError(str(error), line) from error
    if not isinstance(event.parent, str):
        raise ProtocolError("a reply without the id of its request", line)
    return Replied(event.parent, event)
