"""Lines → commands, or the refusal that says what is wrong with a line.

What a command may not be is decided here, what it does is decided in the core. Publishes to one topic behind each other
become one command, so that the work for each of them is a few steps in C.
"""

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import UNSET

from broker.errors import Refusal
from broker.protocol.commands import (
    Ack,
    Checkpoint,
    Command,
    Hello,
    Help,
    Last,
    Ping,
    Position,
    Publish,
    Quit,
    Read,
    Stats,
    Subscribe,
    SubscriptionPolicy,
    Topics,
    Unsubscribe,
)
from broker.protocol.event_lines import parse_event, parse_events
from broker.protocol.lines import TOO_LONG
from broker.protocol.names import check_name, topic_name
from broker.protocol.options import Options

__all__ = ["parse_lines"]

_AT: Final = ord("@")
PREFETCH_MAX: Final = 100_000
READ_LIMIT_MAX: Final = 100_000
READ_BYTES_MAX: Final = 16 << 20

_decode_offsets = msgspec.json.Decoder(list[int]).decode


def parse_lines(lines: list[bytes], line_bytes_max: int) -> list[Command | Refusal]:
    """Return what `lines` ask for, in order; empty lines ask for nothing."""
    found: list[Command | Refusal] = []
    at, end = 0, len(lines)
    while at < end:
        line = lines[at]
        prefix = _publish_prefix(line)
        if prefix is None:
            _append_parsed(found, line, line_bytes_max)
            at += 1
            continue
        first, at = at, at + 1
        while at < end and lines[at].startswith(prefix):
            at += 1
        length = len(prefix)
        found += _parse_publishes(prefix, [line[length:] for line in lines[first:at]])
    return found


def _publish_prefix(line: bytes) -> bytes | None:
    """Return ``pub <topic> `` where a line begins with it in just this form, before the event's brace."""
    brace = line.find(b" {", 4)
    return line[: brace + 1] if brace > 4 and line.startswith(b"pub ") and b" " not in line[4:brace] else None


def _parse_publishes(prefix: bytes, raws: list[bytes]) -> list[Command | Refusal]:
    try:
        topic = topic_name(prefix[4:-1])
    except Refusal as refusal:
        return [refusal] * len(raws)
    try:
        return [Publish(topic, parse_events(raws))]
    except Refusal:
        return _parse_singly(topic, raws)


def _parse_singly(topic: str, raws: list[bytes]) -> list[Command | Refusal]:
    """Find the lines that are to be refused; the events between them stay runs."""
    found: list[Command | Refusal] = []
    run: Publish | None = None
    for raw in raws:
        try:
            event = parse_event(raw)
        except Refusal as refusal:
            found.append(refusal)
            run = None
            continue
        if run is None:
            found.append(run := Publish(topic, []))
        run.events.append(event)
    return found


def _append_parsed(found: list[Command | Refusal], line: bytes, line_bytes_max: int) -> None:
    try:
        if line is TOO_LONG:
            raise Refusal("too_long", f"max={line_bytes_max}")
        verb, _, rest = line.lstrip(b" \t").partition(b" ")
        if verb and not verb.isspace():
            found.append(_parser(verb.rstrip(b"\t"))(rest))
    except Refusal as refusal:
        found.append(refusal)


def _parser(verb: bytes) -> Callable[[bytes], Command]:
    parser = _PARSERS.get(verb) or _PARSERS.get(verb.lower())
    if parser is None:
        raise Refusal("unknown_command", f"{_text(verb)[:40]}; type help")
    return parser


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
    return Publish(topic_name(topic), [parse_event(raw)])


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
    topic, _, refs = rest.partition(b" ")
    refs = refs.strip()
    if not refs:
        raise Refusal("bad_arguments", "usage: ack <topic> <ref>...")
    return Ack(topic_name(topic), *_refs(refs))


def _refs(text: bytes) -> tuple[list[int] | None, list[int | str]]:
    """Read ``@1042`` as an offset, anything else as an event's id; many offsets are read by the JSON decoder at once."""
    if text[0] == _AT and text.count(b" ") == text.count(b" @"):
        try:
            return _decode_offsets(b"[%b]" % text[1:].replace(b" @", b",")), []
        except msgspec.MsgspecError:
            pass
    words = _text(text).split()
    return None, [int(word[1:20]) if word[0] == "@" and word[1:].isdecimal() else word for word in words]


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
_PARSERS: Final[dict[bytes, Callable[[bytes], Command]]] = {verb.encode(): parser for verb, parser in _VERBS.items()}
