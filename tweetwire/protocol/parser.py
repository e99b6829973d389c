"""Parse lines to commands and refusals.

The parser checks the form of each line and finds its verb in the table; the broker's core decides the effect. Consecutive
publishes to one topic become one command, so that each of them costs only a few steps in C.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from tweetwire.protocol.confirmation import ConfirmationChange, split_confirmation
from tweetwire.protocol.errors import Refusal, internal
from tweetwire.protocol.event_lines import parse_event, parse_events
from tweetwire.protocol.events import IncomingEvent
from tweetwire.protocol.fencing import NO_EPOCH, split_epoch
from tweetwire.protocol.lines import TOO_LONG
from tweetwire.protocol.names import topic_name
from tweetwire.protocol.timing import TimedEvent
from tweetwire.protocol.verbs.publishing import Publish
from tweetwire.protocol.verbs.table import VERBS_BY_WORD, find_verb
from tweetwire.protocol.verbs.verb import Command
from tweetwire.protocol.words import WrongUsage, text_of

__all__ = ["parse_lines"]

_PARSERS: Final = {word.encode(): verb.parse for word, verb in VERBS_BY_WORD.items()}


class _Head(NamedTuple):
    """The topic and the options that the lines of a run have in common."""

    topic: str
    wanted: ConfirmationChange | None = None
    epoch: int = NO_EPOCH

    def publish(self, events: list[IncomingEvent], *, is_timed: bool) -> Publish:
        """Return the command that stores `events`."""
        return Publish(self.topic, events, wanted=self.wanted, is_timed=is_timed, epoch=self.epoch)


def parse_lines(lines: list[bytes], line_bytes_max: int) -> list[Command | Refusal]:
    """Return the commands of `lines`, and refusals of wrong lines, in order. Empty lines are left out."""
    found: list[Command | Refusal] = []
    at, end = 0, len(lines)
    while at < end:
        line = lines[at]
        prefix = _publish_prefix(line)
        if prefix is None:
            _append_parsed(found, line, line_bytes_max)
            at += 1
            continue
        first, at, length = at, at + 1, len(prefix)
        # The brace belongs to it, since another line may have options at this place.
        head = line[: length + 1]
        while at < end and lines[at].startswith(head):
            at += 1
        try:
            common = _head(prefix)
        except Refusal:
            # The word is not a name, or it is a name next to a tab. The other parser splits at tabs.
            for one in lines[first:at]:
                _append_parsed(found, one, line_bytes_max)
        else:
            found += _parse_publishes(common, [line[length:] for line in lines[first:at]])
    return found


def _head(prefix: bytes) -> _Head:
    """Return the topic and the options in the beginning of a line. Raises Refusal if the other parser must read it."""
    word, _, options = prefix[4:-1].partition(b" ")
    if not options:
        return _Head(topic_name(word))
    wanted, rest = split_confirmation(options + b" ")
    epoch, rest = split_epoch(rest)
    if rest:
        raise Refusal("bad_arguments", "there are also other options")
    return _Head(topic_name(word), wanted, epoch)


def _publish_prefix(line: bytes) -> bytes | None:
    """Return the ``pub <topic> [<options>] `` before the event's brace, or None for a line in another form."""
    brace = line.find(b" {", 4)
    is_plain = brace > 4 and line.startswith(b"pub ") and (line.find(b" ", 4, brace) < 0 or b"=" in line[4:brace])
    return line[: brace + 1] if is_plain else None


def _parse_publishes(head: _Head, raws: list[bytes]) -> list[Command | Refusal]:
    try:
        events = parse_events(raws)
        return [head.publish(events, is_timed=type(events[0]) is TimedEvent)]
    except Exception:  # noqa: BLE001 — after any fault, each line is read alone to find the wrong ones
        return _parse_singly(head, raws)


def _parse_singly(head: _Head, raws: list[bytes]) -> list[Command | Refusal]:
    """Refuse the wrong lines. Each run of events between two of them becomes one command."""
    found: list[Command | Refusal] = []
    run: Publish | None = None
    for raw in raws:
        try:
            event = parse_event(raw)
        except Refusal as refusal:
            found.append(Refusal(refusal.code, refusal.text, raw, head.topic))
            run = None
            continue
        except Exception as error:  # noqa: BLE001 — see _append_parsed
            found.append(internal(error))
            run = None
            continue
        if run is None:
            found.append(run := head.publish([], is_timed=False))
        run.events.append(event)
        run.is_timed |= type(event) is TimedEvent
    return found


def _append_parsed(found: list[Command | Refusal], line: bytes, line_bytes_max: int) -> None:
    try:
        if line is TOO_LONG:
            raise Refusal("too_long", f"max={line_bytes_max}")
        words = line.split(None, 1)
        if words:
            found.append(_parser(words[0])(words[1] if len(words) > 1 else b""))
    except WrongUsage:
        found.append(_usage(words[0]))
    except Refusal as refusal:
        found.append(refusal.bare())
    except Exception as error:  # noqa: BLE001 — a bug in reading one line must not lose the other lines
        found.append(internal(error))


def _parser(verb: bytes) -> Callable[[bytes], Command]:
    parser = _PARSERS.get(verb) or _PARSERS.get(verb.lower())
    if parser is None:
        raise Refusal("unknown_command", f"{text_of(verb)[:40]}; type help")
    return parser


def _usage(word: bytes) -> Refusal:
    verb = find_verb(word.decode().lower())
    example = f"; an example: {verb.example}" if verb.example else ""
    return Refusal("bad_arguments", f"usage: {verb.usage}{example}")
