"""The verbs that attach a connection to a subscription and detach it: ``sub`` and ``unsub``."""

from typing import Any, ClassVar, Final

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.names import check_name
from tweetwire.protocol.options import Options
from tweetwire.protocol.patterns import check_topic_or_pattern, is_pattern
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.policy import read_policy_change
from tweetwire.protocol.positions import Position, read_position
from tweetwire.protocol.verbs.verb import Command, Verb
from tweetwire.protocol.words import words_of

__all__ = ["PREFETCH_MAX", "SUBSCRIBING_VERBS", "Subscribe", "SubscribePattern", "Unsubscribe", "UnsubscribePattern"]

PREFETCH_MAX: Final = 100_000


class Subscribe(Command):
    """``sub <topic> [as=…] [prefetch=…] …``: attach this connection to a subscription.

    Attributes:
        name: None for a subscription that ends with its connection.
        start: The position at which a new subscription begins; an existing one keeps its own.
        change: The given members of the subscription's `Policy`.
        begins: Whether this connection promises to send ``begin`` for each event before it works on it.
    """

    permission: ClassVar = Permission.USE
    topic: str
    name: str | None
    prefetch: int
    start: Position
    change: dict[str, Any]
    may_create: bool
    begins: bool = False


class SubscribePattern(Command):
    """``sub <pattern> [as=…] [prefetch=…] …``: attach this connection to the subscription of every topic that matches.

    The attributes are those of `Subscribe`. The broker checks the permission for each topic.
    """

    permission: ClassVar = Permission.USE
    pattern: str
    name: str | None
    prefetch: int
    start: Position
    change: dict[str, Any]


class Unsubscribe(Command):
    """``unsub <topic> [as=…] [end]``: detach this connection; with `is_end`, the subscription ends for all clients."""

    permission: ClassVar = Permission.SUBSCRIBE
    topic: str
    name: str | None
    is_end: bool = False


class UnsubscribePattern(Command):
    """``unsub <pattern> [as=…] [end]``: as `Unsubscribe`, for the subscription of every topic that matches."""

    permission: ClassVar = Permission.SUBSCRIBE
    pattern: str
    name: str | None
    is_end: bool = False


def _subscribe(rest: bytes) -> Subscribe | SubscribePattern:
    topic, *words = words_of(rest, 1)
    options = Options(words)
    name, change = options.text("as"), read_policy_change(options)
    if name is None and change.get("qos") == 2:
        raise Refusal("bad_arguments", "qos=2 needs a subscription that outlives its connection: as=<subscription>")
    command = Subscribe(
        topic=check_topic_or_pattern(topic),
        name=None if name is None else check_name(name),
        prefetch=options.number("prefetch", 1, 1, PREFETCH_MAX),
        start=read_position(options.text("from") or "latest"),
        change=change,
        may_create=options.flag("create"),
        begins=options.flag("begins"),
    )
    options.end()
    return _for_pattern(command) if is_pattern(topic) else command


def _for_pattern(command: Subscribe) -> SubscribePattern:
    """Return a ``sub`` of a pattern. Raises Refusal for an option that is about one topic."""
    if command.may_create or command.begins or command.change.get("qos") == 2:
        raise Refusal("bad_arguments", "create, begins and qos=2 are for one topic, not for a pattern")
    if isinstance(command.start, int):
        raise Refusal("bad_arguments", "an offset is of one topic; for a pattern, from= is latest, earliest or a time")
    return SubscribePattern(command.topic, command.name, command.prefetch, command.start, command.change)


def _unsubscribe(rest: bytes) -> Unsubscribe | UnsubscribePattern:
    topic, *words = words_of(rest, 1)
    options = Options(words)
    name, is_end = options.text("as"), options.flag("end")
    options.end()
    if is_end and name is None:
        raise Refusal("bad_arguments", "end needs the name of the subscription: unsub <topic> as=<subscription> end")
    kind = UnsubscribePattern if is_pattern(topic) else Unsubscribe
    return kind(check_topic_or_pattern(topic), None if name is None else check_name(name), is_end)


SUBSCRIBING_VERBS: Final = (
    Verb(
        name="sub",
        long_name="subscribe",
        parse=_subscribe,
        commands=(Subscribe, SubscribePattern),
        usage="sub <topic>|<pattern> [as=<subscription>] [prefetch=1] [from=latest|earliest|<offset>|<time>] [timeout=30s]"
        " [tries=5] [strikes=nack,timeout,disconnect] [backoff=0s] [max_wait=60s] [qos=1] [ordered=none|key] [begins] [create]",
        summary="delivers the events of a topic to this connection; with as=, the subscription outlives the connection, and"
        " several connections can share it; a pattern such as orders.* or tenant.> means every topic that matches, also later"
        " ones; with ordered=key, the events of one key go to one connection at a time, in order; with begins, a lost"
        " connection counts as a failed try only for events that"
        " it began",
    ),
    Verb(
        name="unsub",
        long_name="unsubscribe",
        parse=_unsubscribe,
        commands=(Unsubscribe, UnsubscribePattern),
        usage="unsub <topic>|<pattern> [as=<subscription>] [end]",
        summary="detaches this connection from a subscription; its events in flight go to other connections without a failed"
        " try; with end, the named subscription ends for all connections, and its pending events are forgotten",
    ),
)
