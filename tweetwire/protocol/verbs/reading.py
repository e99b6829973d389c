"""The verb that reads a topic's log without a subscription: ``read``."""

from typing import ClassVar, Final

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.names import check_name
from tweetwire.protocol.options import LIMIT_MAX, Options
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.positions import Position, read_position
from tweetwire.protocol.units import parse_seconds
from tweetwire.protocol.verbs.verb import Command, Verb
from tweetwire.protocol.words import words_of

__all__ = ["READING_VERBS", "Read"]

READ_BYTES_MAX: Final = 16 << 20
WAIT_MS_MAX: Final = 60_000


class Read(Command):
    """``read <topic> <offset>|earliest|latest|<time> [limit=…] [bytes=…] [wait=…] [log=…]``: read events from the log.

    At the end of the log, wait up to `wait_ms` for the next event. Unless `log` is None, the log must have this id.
    """

    permission: ClassVar = Permission.SUBSCRIBE
    topic: str
    start: Position
    limit: int
    bytes_max: int
    wait_ms: int = 0
    log: str | None = None


def _read(rest: bytes) -> Read:
    topic, start, *words = words_of(rest, 2)
    options = Options(words)
    command = Read(
        topic=check_name(topic),
        start=read_position(start),
        limit=options.number("limit", 1000, 1, LIMIT_MAX),
        bytes_max=options.number("bytes", 1 << 20, 1, READ_BYTES_MAX),
        wait_ms=_wait_ms(options.text("wait")),
        log=options.text("log"),
    )
    options.end()
    return command


def _wait_ms(text: str | None) -> int:
    try:
        wait_ms = 0 if text is None else round(parse_seconds(text) * 1000)
    except ValueError as error:
        raise Refusal("bad_arguments", f"wait: {error}") from None
    if wait_ms > WAIT_MS_MAX:
        raise Refusal("bad_arguments", f"wait is at most {WAIT_MS_MAX // 1000}s; read again after that")
    return wait_ms


READING_VERBS: Final = (
    Verb(
        name="read",
        parse=_read,
        commands=(Read,),
        usage="read <topic> <offset>|earliest|latest|<time> [limit=1000] [bytes=1048576] [wait=0s] [log=<id>]",
        summary="reads events from the log, without a subscription; with wait, waits at the end of the log for the next"
        " event; with log, refuses to read another log than this one",
    ),
)
