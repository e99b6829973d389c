"""The verbs that report, as JSON, on the broker and its topics, subscriptions, clients and events."""

from typing import ClassVar, Final

from tweetwire.protocol.names import check_name
from tweetwire.protocol.options import LIMIT_MAX, Options
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.verbs.verb import Command, Verb
from tweetwire.protocol.words import OFFSET_MAX, WrongUsage, ref_of, words_of

__all__ = ["REPORTING_VERBS", "Backlog", "Chain", "Clients", "Dead", "Explain", "Stats", "Topics", "Unsettled"]


class Topics(Command):
    """``topics``: list the topics."""

    permission: ClassVar = Permission.LOGIN


class Stats(Command):
    """``stats [<topic>]``: show the figures of the broker; `topic` is None for all topics."""

    permission: ClassVar = Permission.LOGIN
    topic: str | None = None


class Explain(Command):
    """``explain <topic> <ref> as=<subscription>``: show the state of an event in a subscription."""

    permission: ClassVar = Permission.LOOK
    topic: str
    ref: int | str
    name: str


class Chain(Command):
    """``chain <topic> <ref> [limit=…]``: show the causes and effects of an event."""

    permission: ClassVar = Permission.SUBSCRIBE
    topic: str
    ref: int | str
    limit: int


class Dead(Command):
    """``dead [topic=…] [as=…] [limit=…]``: list the dead letters."""

    permission: ClassVar = Permission.LOOK
    topic: str | None
    name: str | None
    limit: int


class Unsettled(Command):
    """``unsettled <topic> as=<subscription> [from=<offset>] [limit=…]``: list the runs of unsettled offsets."""

    permission: ClassVar = Permission.LOOK
    topic: str
    name: str
    start: int
    limit: int


class Backlog(Command):
    """``backlog <topic> as=<subscription>``: show how many events of a subscription are not settled."""

    permission: ClassVar = Permission.LOOK
    topic: str
    name: str


class Clients(Command):
    """``clients [limit=…]``: list the connected clients."""

    permission: ClassVar = Permission.ADMIN
    limit: int


def _topics(rest: bytes) -> Topics:
    words_of(rest, 0, 0)
    return Topics()


def _stats(rest: bytes) -> Stats:
    words = words_of(rest, 0, 1)
    return Stats(check_name(words[0]) if words else None)


def _explain(rest: bytes) -> Explain:
    topic, ref, *words = words_of(rest, 3)
    options = Options(words)
    name = options.text("as")
    options.end()
    if name is None:
        raise WrongUsage
    return Explain(check_name(topic), ref_of(ref), check_name(name))


def _chain(rest: bytes) -> Chain:
    topic, ref, *words = words_of(rest, 2)
    options = Options(words)
    command = Chain(check_name(topic), ref_of(ref), options.number("limit", 1000, 1, LIMIT_MAX))
    options.end()
    return command


def _dead(rest: bytes) -> Dead:
    options = Options(words_of(rest, 0))
    topic, name = options.text("topic"), options.text("as")
    command = Dead(topic and check_name(topic), name and check_name(name), options.number("limit", 100, 1, LIMIT_MAX))
    options.end()
    return command


def _unsettled(rest: bytes) -> Unsettled:
    topic, *words = words_of(rest, 2)
    options = Options(words)
    name = options.text("as")
    if name is None:
        raise WrongUsage
    command = Unsettled(
        topic=check_name(topic),
        name=check_name(name),
        start=options.number("from", 0, 0, OFFSET_MAX),
        limit=options.number("limit", 10_000, 1, LIMIT_MAX),
    )
    options.end()
    return command


def _backlog(rest: bytes) -> Backlog:
    topic, *words = words_of(rest, 2)
    options = Options(words)
    name = options.text("as")
    options.end()
    if name is None:
        raise WrongUsage
    return Backlog(check_name(topic), check_name(name))


def _clients(rest: bytes) -> Clients:
    options = Options(words_of(rest, 0))
    command = Clients(options.number("limit", 1000, 1, LIMIT_MAX))
    options.end()
    return command


REPORTING_VERBS: Final = (
    Verb(
        name="topics",
        parse=_topics,
        commands=(Topics,),
        usage="topics",
        summary="lists the topics, as JSON",
    ),
    Verb(
        name="stats",
        parse=_stats,
        commands=(Stats,),
        usage="stats [<topic>]",
        summary="shows every figure of the broker, or the figures of one topic, as JSON",
    ),
    Verb(
        name="explain",
        parse=_explain,
        commands=(Explain,),
        usage="explain <topic> <ref> as=<subscription>",
        summary="shows where an event stands for a subscription, and why, as JSON",
    ),
    Verb(
        name="chain",
        parse=_chain,
        commands=(Chain,),
        usage="chain <topic> <ref> [limit=1000]",
        summary="shows the tree of causes and effects that an event is part of, as JSON",
    ),
    Verb(
        name="dead",
        parse=_dead,
        commands=(Dead,),
        usage="dead [topic=<topic>] [as=<subscription>] [limit=100]",
        summary="lists the dead letters, the newest first, as JSON",
    ),
    Verb(
        name="unsettled",
        parse=_unsettled,
        commands=(Unsettled,),
        usage="unsettled <topic> as=<subscription> [from=<offset>] [limit=10000]",
        summary="shows which events are pending or in flight, as JSON: runs of offsets, and the offset to continue from",
    ),
    Verb(
        name="backlog",
        parse=_backlog,
        commands=(Backlog,),
        usage="backlog <topic> as=<subscription>",
        summary="shows the pending events by priority, the oldest unsettled event, and how much each consumer has in flight,"
        " as JSON",
    ),
    Verb(
        name="clients",
        parse=_clients,
        commands=(Clients,),
        usage="clients [limit=1000]",
        summary="lists the connected clients, as JSON; for administrators",
    ),
)
