"""Lines → commands, or the refusal that says what is wrong with a line.

What a command may not be is decided here, what it does is decided in the core. Publishes to one topic behind each other
become one command, so that the work for each of them is a few steps in C.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

from broker.errors import Refusal
from broker.protocol.commands import (
    Ack,
    Backlog,
    Chain,
    Checkpoint,
    Clients,
    Command,
    Dead,
    Explain,
    Extend,
    Hello,
    Help,
    Last,
    Moment,
    Nack,
    Ping,
    Position,
    Publish,
    Quit,
    Read,
    Redrive,
    Stats,
    Subscribe,
    Topics,
    Unsettled,
    Unsubscribe,
)
from broker.protocol.documentation import DOCUMENTATION_VERBS
from broker.protocol.event_lines import parse_event, parse_events
from broker.protocol.handshake_lines import HANDSHAKE_VERBS
from broker.protocol.lines import TOO_LONG
from broker.protocol.names import check_name, topic_name
from broker.protocol.options import Options
from broker.protocol.policy import read_policy_change
from broker.protocol.retention import RETENTION_VERBS
from broker.protocol.words import ref_of, text_of, words_of

__all__ = ["parse_lines"]

_AT: Final = ord("@")
PREFETCH_MAX: Final = 100_000
READ_LIMIT_MAX: Final = 100_000
NACK_BYTES_MAX: Final = 16 << 10
READ_BYTES_MAX: Final = 16 << 20
OFFSET_MAX: Final = (1 << 63) - 1


class _Words(Struct, forbid_unknown_fields=True):
    message: str | None = None
    code: str | int | None = None
    trace: str | None = None


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
            found.append(Refusal(refusal.code, refusal.text, raw))
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
        raise Refusal("unknown_command", f"{text_of(verb)[:40]}; type help")
    return parser


def _publish(rest: bytes) -> Publish:
    topic, _, raw = rest.partition(b" ")
    if not raw or raw.isspace():
        raise Refusal("bad_arguments", "usage: pub <topic> <event>")
    return Publish(topic_name(topic), [parse_event(raw)])


def _hello(rest: bytes) -> Hello:
    name, *words = words_of(rest, "hello <name> [token=...] [quiet] [resume]", 1)
    options = Options(words)
    command = Hello(check_name(name), options.flag("quiet"), options.flag("resume"), options.text("token"))
    options.end()
    return command


def _subscribe(rest: bytes) -> Subscribe:
    topic, *words = words_of(
        rest, "sub <topic> [as=<subscription>] [prefetch=1] [from=latest] [timeout=30s] [tries=5] ... [create]", 1
    )
    options = Options(words)
    name, change = options.text("as"), read_policy_change(options)
    if name is None and change.get("qos") == 2:
        raise Refusal("bad_arguments", "qos=2 needs a subscription that outlives its connection: as=<subscription>")
    command = Subscribe(
        topic=check_name(topic),
        name=None if name is None else check_name(name),
        prefetch=options.number("prefetch", 1, 1, PREFETCH_MAX),
        start=_position(options.text("from") or "latest"),
        change=change,
        may_create=options.flag("create"),
    )
    options.end()
    return command


def _unsubscribe(rest: bytes) -> Unsubscribe:
    topic, *words = words_of(rest, "unsub <topic> [as=<subscription>]", 1)
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
    return None, [ref_of(word) for word in text_of(text).split()]


def _nack(rest: bytes) -> Nack:
    topic, ref, *error = text_of(rest).strip().split(" ", 2) if rest.strip() else ("", "")
    if not ref:
        raise Refusal("bad_arguments", "usage: nack <topic> <ref> [<error>]")
    return Nack(check_name(topic), ref_of(ref), *_error(error[0].strip() if error else ""))


def _error(text: str) -> tuple[str | None, str | int | None, str | None]:
    """Read a consumer's own words: a JSON string, or an object of message, code and trace."""
    if not text:
        return None, None, None
    if len(text.encode()) > NACK_BYTES_MAX:
        raise Refusal("bad_arguments", f"the error is longer than {NACK_BYTES_MAX} bytes")
    try:
        words = msgspec.json.decode(text, type=str | _Words)
    except msgspec.MsgspecError as error:
        raise Refusal("bad_json", f"the error is a JSON string or an object of message, code, trace: {error}") from None
    return (words, None, None) if isinstance(words, str) else (words.message, words.code, words.trace)


def _extend(rest: bytes) -> Extend:
    topic, *refs = words_of(rest, "extend <topic> <ref>...", 2)
    return Extend(check_name(topic), [ref_of(ref) for ref in refs])


def _explain(rest: bytes) -> Explain:
    usage = "explain <topic> <ref> as=<subscription>"
    topic, ref, *words = words_of(rest, usage, 3)
    options = Options(words)
    name = options.text("as")
    options.end()
    if name is None:
        raise Refusal("bad_arguments", f"usage: {usage}")
    return Explain(check_name(topic), ref_of(ref), check_name(name))


def _chain(rest: bytes) -> Chain:
    topic, ref, *words = words_of(rest, "chain <topic> <ref> [limit=1000]", 2)
    options = Options(words)
    command = Chain(check_name(topic), ref_of(ref), options.number("limit", 1000, 1, READ_LIMIT_MAX))
    options.end()
    return command


def _dead(rest: bytes) -> Dead:
    options = Options(words_of(rest, "dead [topic=...] [as=...] [limit=100]", 0))
    topic, name = options.text("topic"), options.text("as")
    command = Dead(
        topic and check_name(topic), name and check_name(name), options.number("limit", 100, 1, READ_LIMIT_MAX)
    )
    options.end()
    return command


def _redrive(rest: bytes) -> Redrive:
    usage = "redrive <topic> as=<subscription> <ref>...|all [rate=<n>/s]"
    topic, *words = words_of(rest, usage, 3)
    options = Options([word for word in words if word.startswith(("as=", "rate="))])
    refs = [word for word in words if not word.startswith(("as=", "rate="))]
    name, rate = options.text("as"), options.text("rate")
    if name is None or not refs:
        raise Refusal("bad_arguments", f"usage: {usage}")
    number = (rate or "1000/s").removesuffix("/s")
    if not (number.isascii() and number.isdecimal() and 0 < int(number[:10]) <= 1_000_000):
        raise Refusal("bad_arguments", "rate is events a second, written 50/s")
    return Redrive(
        check_name(topic),
        check_name(name),
        None if refs == ["all"] else [ref_of(ref) for ref in refs],
        int(number[:10]),
    )


def _unsettled(rest: bytes) -> Unsettled:
    usage = "unsettled <topic> as=<subscription> [from=<offset>] [limit=10000]"
    topic, *words = words_of(rest, usage, 2)
    options = Options(words)
    name = options.text("as")
    if name is None:
        raise Refusal("bad_arguments", f"usage: {usage}")
    command = Unsettled(
        topic=check_name(topic),
        name=check_name(name),
        start=options.number("from", 0, 0, OFFSET_MAX),
        limit=options.number("limit", 10_000, 1, READ_LIMIT_MAX),
    )
    options.end()
    return command


def _backlog(rest: bytes) -> Backlog:
    usage = "backlog <topic> as=<subscription>"
    topic, *words = words_of(rest, usage, 2)
    options = Options(words)
    name = options.text("as")
    options.end()
    if name is None:
        raise Refusal("bad_arguments", f"usage: {usage}")
    return Backlog(check_name(topic), check_name(name))


def _clients(rest: bytes) -> Clients:
    options = Options(words_of(rest, "clients [limit=1000]", 0))
    command = Clients(options.number("limit", 1000, 1, READ_LIMIT_MAX))
    options.end()
    return command


def _read(rest: bytes) -> Read:
    topic, start, *words = words_of(rest, "read <topic> <offset>|earliest|latest [limit=1000] [bytes=1048576]", 2)
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
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise Refusal(
            "bad_arguments", f"{word[:40]!a} is no place; write an offset, earliest, latest or 2026-11-27T20:00:00Z"
        ) from None
    return Moment(round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


def _last(rest: bytes) -> Last:
    topic, producer = words_of(rest, "last <topic> <producer>", 2, 2)
    return Last(check_name(topic), check_name(producer))


def _checkpoint(rest: bytes) -> Checkpoint:
    words = text_of(rest).split(" ", 2)
    if len(words) < 3 or not words[2]:
        raise Refusal("bad_arguments", "usage: checkpoint <topic> <producer> <string>")
    return Checkpoint(check_name(words[0]), check_name(words[1]), words[2].rstrip("\r"))


def _help(rest: bytes) -> Help:
    words = words_of(rest, "help [<command>]", 0, 1)
    return Help(words[0].lower() if words else None)


def _bare(command: type[Command], usage: str) -> Callable[[bytes], Command]:
    def parse_bare(rest: bytes) -> Command:
        words_of(rest, usage, 0, 0)
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
    "nack": _nack,
    "reject": _nack,
    "extend": _extend,
    "explain": _explain,
    "chain": _chain,
    "dead": _dead,
    "redrive": _redrive,
    "unsettled": _unsettled,
    "backlog": _backlog,
    "clients": _clients,
    "read": _read,
    "last": _last,
    "checkpoint": _checkpoint,
    "topics": _bare(Topics, "topics"),
    "stats": _bare(Stats, "stats"),
    "ping": _bare(Ping, "ping"),
    **HANDSHAKE_VERBS,
    **DOCUMENTATION_VERBS,
    **RETENTION_VERBS,
    "help": _help,
    "quit": _bare(Quit, "quit"),
}
_PARSERS: Final[dict[bytes, Callable[[bytes], Command]]] = {verb.encode(): parser for verb, parser in _VERBS.items()}
