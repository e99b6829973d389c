"""The verb that reads a topic's log without a subscription: ``read``."""

from typing import ClassVar, Final

from tweetwire.protocol.names import check_name
from tweetwire.protocol.options import LIMIT_MAX, Options
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.positions import Position, read_position
from tweetwire.protocol.verbs.verb import Command, Verb
from tweetwire.protocol.words import words_of

__all__ = ["READING_VERBS", "Read"]

READ_BYTES_MAX: Final = 16 << 20


class Read(Command):
    """``read <topic> <offset>|earliest|latest|<time> [limit=…] [bytes=…]``: read events from the log."""

    permission: ClassVar = Permission.SUBSCRIBE
    topic: str
    start: Position
    limit: int
    bytes_max: int


def _read(rest: bytes) -> Read:
    topic, start, *words = words_of(rest, 2)
    options = Options(words)
    command = Read(
        topic=check_name(topic),
        start=read_position(start),
        limit=options.number("limit", 1000, 1, LIMIT_MAX),
        bytes_max=options.number("bytes", 1 << 20, 1, READ_BYTES_MAX),
    )
    options.end()
    return command


READING_VERBS: Final = (
    Verb(
        name="read",
        parse=_read,
        commands=(Read,),
        usage="read <topic> <offset>|earliest|latest|<time> [limit=1000] [bytes=1048576]",
        summary="reads events from the log, without a subscription",
    ),
)
