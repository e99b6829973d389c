"""The verb that copies the broker's durable state for a backup: ``state``."""

from typing import ClassVar, Final

from tweetwire.protocol.options import Options
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.verbs.verb import Command, Verb
from tweetwire.protocol.words import OFFSET_MAX, words_of

__all__ = ["STATE_VERBS", "State"]


class State(Command):
    """``state [from=…]``: show a part of a copy of the state. With 0, `start` makes a new copy."""

    permission: ClassVar = Permission.ADMIN
    start: int


def _state(rest: bytes) -> State:
    options = Options(words_of(rest, 0))
    command = State(options.number("from", 0, 0, OFFSET_MAX))
    options.end()
    return command


STATE_VERBS: Final = (
    Verb(
        name="state",
        parse=_state,
        commands=(State,),
        usage="state [from=0]",
        summary="copies the state of all topics that you may read for a backup, and shows a part of the copy, as JSON;"
        " for administrators",
    ),
)
