"""The verbs that make, empty and delete a topic, and set how long its events stay: ``create`` … ``retain``."""

from typing import Any, ClassVar, Final

from tweetwire.protocol.names import check_name
from tweetwire.protocol.options import Options
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.positions import Position, read_position
from tweetwire.protocol.retention import read_retention_change
from tweetwire.protocol.verbs.verb import Command, Verb
from tweetwire.protocol.words import words_of

__all__ = ["TOPICS_VERBS", "Create", "Drop", "Purge", "Retain"]


class Create(Command):
    """``create <topic> [age=…] [bytes=…] [settled=…] [at_most=…]``: make a topic. `retention` is as `Retain.change`."""

    permission: ClassVar = Permission.MANAGE
    topic: str
    retention: dict[str, Any]


class Drop(Command):
    """``drop <topic> [if_empty]``: delete a topic. With `if_empty`, a topic with events is refused."""

    permission: ClassVar = Permission.MANAGE
    topic: str
    if_empty: bool


class Purge(Command):
    """``purge <topic> [before=…]``: delete the events of a topic before a position."""

    permission: ClassVar = Permission.MANAGE
    topic: str
    before: Position


class Retain(Command):
    """``retain <topic> [age=…] [bytes=…] [settled=…] [at_most=…]``: set, or show, how long events stay.

    `change` holds the given members of the topic's `Retention`; if it is empty, the setting is shown.
    """

    permission: ClassVar = Permission.MANAGE
    topic: str
    change: dict[str, Any]


def _create(rest: bytes) -> Create:
    return Create(*_topic_and_retention(rest))


def _drop(rest: bytes) -> Drop:
    topic, *words = words_of(rest, 1)
    options = Options(words)
    command = Drop(check_name(topic), options.flag("if_empty"))
    options.end()
    return command


def _purge(rest: bytes) -> Purge:
    topic, *words = words_of(rest, 1)
    options = Options(words)
    command = Purge(check_name(topic), read_position(options.text("before") or "latest"))
    options.end()
    return command


def _retain(rest: bytes) -> Retain:
    return Retain(*_topic_and_retention(rest))


def _topic_and_retention(rest: bytes) -> tuple[str, dict[str, Any]]:
    topic, *words = words_of(rest, 1)
    options = Options(words)
    change = read_retention_change(options)
    options.end()
    return check_name(topic), change


TOPICS_VERBS: Final = (
    Verb(
        name="create",
        parse=_create,
        commands=(Create,),
        usage="create <topic> [age=7d] [bytes=10GiB] [settled=yes|no] [at_most=20GiB]",
        summary="makes a topic, with a retention if one is given; an existing topic stays as it is",
    ),
    Verb(
        name="drop",
        parse=_drop,
        commands=(Drop,),
        usage="drop <topic> [if_empty]",
        summary="deletes a topic with its events, subscriptions and documentation; with if_empty, a topic that has events"
        " is refused",
    ),
    Verb(
        name="purge",
        parse=_purge,
        commands=(Purge,),
        usage="purge <topic> [before=<offset>|earliest|latest|<time>]",
        summary="deletes the events of a topic, or those before a place; its subscriptions continue after them",
    ),
    Verb(
        name="retain",
        parse=_retain,
        commands=(Retain,),
        usage="retain <topic> [age=7d|none] [bytes=10GiB|none] [settled=yes|no] [at_most=20GiB|none]",
        summary="sets how long events stay; events that a durable subscription has not settled stay up to at_most;"
        " without options, shows the setting",
    ),
)
