"""Notices: lines that the broker sends without a command. Their first byte is ``!``.

The broker sends ``!ended <topic> as=<subscription> <reason>`` to a connection that loses a subscription. A client ignores
notices that it does not know, so that a newer broker can send other ones.
"""

from typing import Final, NamedTuple

__all__ = ["NOTICE", "Ended", "ended_line", "read_ended"]

NOTICE: Final = b"!"
_ENDED_WORDS: Final = 4


class Ended(NamedTuple):
    """The content of ``!ended``: the connection no longer has subscription `name` of `topic`, for `reason`."""

    topic: str
    name: str
    reason: str


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
