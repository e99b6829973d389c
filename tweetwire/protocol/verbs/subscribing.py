"""The verbs that attach a connection to a subscription and detach it: ``sub`` and ``unsub``."""

from typing import Any, ClassVar, Final

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.names import check_name
from tweetwire.protocol.options import Options
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.policy import read_policy_change
from tweetwire.protocol.positions import Position, read_position
from tweetwire.protocol.verbs.verb import Command, Verb
from tweetwire.protocol.words import words_of

__all__ = ["SUBSCRIBING_VERBS", "Subscribe", "Unsubscribe"]

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


class Unsubscribe(Command):
    """``unsub <topic> [as=…] [end]``: detach this connection; with `is_end`, the subscription ends for all clients."""

    permission: ClassVar = Permission.SUBSCRIBE
    topic: str
    name: str | None
    is_end: bool = False


def _subscribe(rest: bytes) -> Subscribe:
    topic, *words = words_of(rest, 1)
    options = Options(words)
    name, change = options.text("as"), read_policy_change(options)
    if name is None and change.get("qos") == 2:
        raise Refusal("bad_arguments", "qos=2 needs a subscription that outlives its connection: as=<subscription>")
    command = Subscribe(
        topic=check_name(topic),
        name=None if name is None else check_name(name),
        prefetch=options.number("prefetch", 1, 1, PREFETCH_MAX),
        start=read_position(options.text("from") or "latest"),
        change=change,
        may_create=options.flag("create"),
        begins=options.flag("begins"),
    )
    options.end()
    return command


def _unsubscribe(rest: bytes) -> Unsubscribe:
    topic, *words = words_of(rest, 1)
    options = Options(words)
    name, is_end = options.text("as"), options.flag("end")
    options.end()
    if is_end and name is None:
        raise Refusal("bad_arguments", "end needs the name of the subscription: unsub <topic> as=<subscription> end")
    return Unsubscribe(check_name(topic), None if name is None else check_name(name), is_end)


SUBSCRIBING_VERBS: Final = (
    Verb(
        name="sub",
        long_name="subscribe",
        parse=_subscribe,
        commands=(Subscribe,),
        usage="sub <topic> [as=<subscription>] [prefetch=1] [from=latest|earliest|<offset>|<time>] [timeout=30s] [tries=5]"
        " [strikes=nack,timeout,disconnect] [backoff=0s] [max_wait=60s] [qos=1] [begins] [create]",
        summary="delivers the events of a topic to this connection; with as=, the subscription outlives the connection, and"
        " several connections can share it; with begins, a lost connection counts as a failed try only for events that"
        " it began",
    ),
    Verb(
        name="unsub",
        long_name="unsubscribe",
        parse=_unsubscribe,
        commands=(Unsubscribe,),
        usage="unsub <topic> [as=<subscription>] [end]",
        summary="detaches this connection from a subscription; its events in flight go to other connections without a failed"
        " try; with end, the named subscription ends for all connections, and its pending events are forgotten",
    ),
)
