"""One line → one command, or the refusal that says what is wrong with it.

A command is a struct; `parse` is the only way from bytes to one. What a command may not be is decided here, what it
does is decided in the core.
"""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from broker.errors import Refusal
from broker.events import RawEvent
from broker.protocol.event_lines import parse_event
from broker.protocol.names import check_name, topic_name
from broker.protocol.options import Options

__all__ = [
    "Ack",
    "Checkpoint",
    "Command",
    "Hello",
    "Help",
    "Last",
    "Ping",
    "Publish",
    "Quit",
    "Read",
    "Stats",
    "Subscribe",
    "SubscriptionPolicy",
    "Topics",
    "Unsubscribe",
    "parse",
]

_AT: Final = ord("@")
PREFETCH_MAX: Final = 100_000
READ_LIMIT_MAX: Final = 100_000
READ_BYTES_MAX: Final = 16 << 20

Position: TypeAlias = int | Literal["earliest", "latest"]


class Publish(Struct, gc=False):
    """``pub <topic> <event>``; `body` is the event in its one form, from the opening brace on."""

    topic: str
    event: RawEvent
    body: bytes


class Hello(Struct):
    """``hello <name> [token=…] [quiet] [resume]``"""

    name: str
    is_quiet: bool = False


class SubscriptionPolicy(Struct, frozen=True):
    """What a ``sub`` line says about the subscription itself; UNSET keeps what it has."""

    start: Position | UnsetType = UNSET


class Subscribe(Struct):
    """``sub <topic> [as=…] [prefetch=…] …``; `name` is None for a subscription that ends with its connection."""

    topic: str
    name: str | None
    prefetch: int
    policy: SubscriptionPolicy
    may_create: bool


class Unsubscribe(Struct):
    """``unsub <topic> [as=…]``"""

    topic: str
    name: str | None


class Ack(Struct, gc=False):
    """``ack <topic> <ref>…``; a ref is an offset, or an id as text."""

    topic: str
    refs: list[int | str]


class Read(Struct):
    """``read <topic> <offset>|earliest|latest [limit=…] [bytes=…]``"""

    topic: str
    start: Position
    limit: int
    bytes_max: int


class Last(Struct):
    """``last <topic> <producer>``"""

    topic: str
    producer: str


class Checkpoint(Struct):
    """``checkpoint <topic> <producer> <string>``"""

    topic: str
    producer: str
    value: str


class Topics(Struct):
    """``topics``"""


class Stats(Struct):
    """``stats``"""


class Help(Struct):
    """``help [<verb>]``"""

    verb: str | None


class Ping(Struct):
    """``ping``"""


class Quit(Struct):
    """``quit``"""


Command: TypeAlias = (
    Publish | Hello | Subscribe | Unsubscribe | Ack | Read | Last | Checkpoint | Topics | Stats | Help | Ping | Quit
)


def parse(line: bytes) -> Command | None:
    """Return the command that `line` is, None for an empty line. Raises Refusal."""
    verb, _, rest = line.partition(b" ")
    parser = _PARSERS.get(verb)
    if parser is None:
        line = line.strip()
        if not line:
            return None
        verb, _, rest = line.partition(b" ")
        parser = _PARSERS.get(verb.lower())
        if parser is None:
            raise Refusal("unknown_command", f"{_text(verb)[:40]}; type help")
    return parser(rest)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Refusal("bad_utf8", "the line is not UTF-8") from None


def _words(rest: bytes, usage: str, least: int, most: int | None = None) -> list[str]:
    words = _text(rest).split()
    if len(words) < least or (most is not None and len(words) > most):
        raise Refusal("bad_arguments", f"usage: {usage}")
    return words


def _publish(rest: bytes) -> Publish:
    topic, _, raw = rest.partition(b" ")
    if not raw or raw.isspace():
        raise Refusal("bad_arguments", "usage: pub <topic> <event>")
    name = topic_name(topic)
    event, body = parse_event(raw)
    return Publish(name, event, body)


def _hello(rest: bytes) -> Hello:
    name, *words = _words(rest, "hello <name> [token=...] [quiet] [resume]", 1)
    options = Options(words)
    quiet = options.flag("quiet")
    options.end()
    return Hello(check_name(name), quiet)


def _subscribe(rest: bytes) -> Subscribe:
    topic, *words = _words(rest, "sub <topic> [as=<subscription>] [prefetch=1] [from=latest] [create]", 1)
    options = Options(words)
    name = options.text("as")
    command = Subscribe(
        topic=check_name(topic),
        name=None if name is None else check_name(name),
        prefetch=options.number("prefetch", 1, 1, PREFETCH_MAX),
        policy=SubscriptionPolicy(start=UNSET if (start := options.text("from")) is None else _position(start)),
        may_create=options.flag("create"),
    )
    options.end()
    return command


def _unsubscribe(rest: bytes) -> Unsubscribe:
    topic, *words = _words(rest, "unsub <topic> [as=<subscription>]", 1)
    options = Options(words)
    name = options.text("as")
    options.end()
    return Unsubscribe(check_name(topic), None if name is None else check_name(name))


def _ack(rest: bytes) -> Ack:
    topic, *refs = rest.split()
    if not refs:
        raise Refusal("bad_arguments", "usage: ack <topic> <ref>...")
    return Ack(topic_name(topic), [_ref(ref) for ref in refs])


def _ref(word: bytes) -> int | str:
    """Read ``@1042`` as an offset; anything else is an event's id."""
    if word[0] == _AT and word[1:].isdigit():
        return int(word[1:20])
    return _text(word)


def _read(rest: bytes) -> Read:
    topic, start, *words = _words(rest, "read <topic> <offset>|earliest|latest [limit=1000] [bytes=1048576]", 2)
    options = Options(words)
    command = Read(
        topic=check_name(topic),
        start=_position(start),
        limit=options.number("limit", 1000, 1, READ_LIMIT_MAX),
        bytes_max=options.number("bytes", 1 << 20, 1, READ_BYTES_MAX),
    )
    options.end()
    return command


def _position(word: str) -> Position:
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    if word.isascii() and word.isdecimal() and len(word) < 20:
        return int(word)
    raise Refusal("bad_arguments", f"{word[:40]!r} is no offset; write a number, earliest or latest")


def _last(rest: bytes) -> Last:
    topic, producer = _words(rest, "last <topic> <producer>", 2, 2)
    return Last(check_name(topic), check_name(producer))


def _checkpoint(rest: bytes) -> Checkpoint:
    words = _text(rest).split(" ", 2)
    if len(words) < 3 or not words[2]:
        raise Refusal("bad_arguments", "usage: checkpoint <topic> <producer> <string>")
    return Checkpoint(check_name(words[0]), check_name(words[1]), words[2].rstrip("\r"))


def _help(rest: bytes) -> Help:
    words = _words(rest, "help [<command>]", 0, 1)
    return Help(words[0].lower() if words else None)


def _bare(command: type[Command], usage: str) -> Callable[[bytes], Command]:
    def parse_bare(rest: bytes) -> Command:
        _words(rest, usage, 0, 0)
        return msgspec.convert({}, command)

    return parse_bare


_VERBS: Final[dict[str, Callable[[bytes], Command]]] = {
    "hello": _hello,
    "pub": _publish,
    "publish": _publish,
    "sub": _subscribe,
    "subscribe": _subscribe,
    "unsub": _unsubscribe,
    "unsubscribe": _unsubscribe,
    "ack": _ack,
    "acknowledge": _ack,
    "read": _read,
    "last": _last,
    "checkpoint": _checkpoint,
    "topics": _bare(Topics, "topics"),
    "stats": _bare(Stats, "stats"),
    "ping": _bare(Ping, "ping"),
    "help": _help,
    "quit": _bare(Quit, "quit"),
}
_PARSERS: Final = {verb.encode(): parser for verb, parser in _VERBS.items()}
