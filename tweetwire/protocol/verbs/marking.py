"""The verbs of marks: ``mark``, ``unmark``, ``marks`` and ``confirm``.

A mark is a durable, named statement about a topic: another system has every event below its offset.
"""

from typing import ClassVar, Final

from tweetwire.protocol.confirmation import NO_MARK, ConfirmationChange, read_confirmation_change
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.names import check_name
from tweetwire.protocol.options import Options
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.verbs.verb import Command, Verb
from tweetwire.protocol.words import WrongUsage, ref_of, words_of

__all__ = ["CHECKPOINT_BYTES_MAX", "EXCEPTED_MAX", "MARKING_VERBS", "Confirm", "Mark", "Marks", "Unmark"]

EXCEPTED_MAX: Final = 1000
"""The most offsets after ``except`` in one line."""
CHECKPOINT_BYTES_MAX: Final = 4096


class Mark(Command):
    """``mark <topic> as=<name> [checkpoint=…] [log=…] @<offset> [except @<n>…]``: another system has all events below `offset`.

    The other system does not have the events at the offsets `excepted`. If `checkpoint` is None, the mark keeps its
    checkpoint. Unless `log` is None, the topic's log must have this id.
    """

    permission: ClassVar = Permission.MARK
    topic: str
    name: str
    offset: int
    excepted: list[int]
    checkpoint: str | None
    log: str | None = None


class Unmark(Command):
    """``unmark <topic> as=<name>``: forget a mark."""

    permission: ClassVar = Permission.MARK
    topic: str
    name: str


class Marks(Command):
    """``marks <topic>``: show the marks of a topic."""

    permission: ClassVar = Permission.SUBSCRIBE
    topic: str


class Confirm(Command):
    """``confirm <topic> [after=…] [within=…]``: set, or show, which marks the confirmations of a topic wait for.

    If `change` is None, the setting is shown.
    """

    permission: ClassVar = Permission.MANAGE
    topic: str
    change: ConfirmationChange | None


def mark_name(name: str) -> str:
    """Return the name of a mark. Raises Refusal ``bad_name``."""
    if name.lower() == NO_MARK:
        raise Refusal("bad_name", f"{NO_MARK} stands for no mark; choose another name")
    return check_name(name)


def _mark(rest: bytes) -> Mark:
    topic, *words = words_of(rest, 3)
    at = next((number for number, word in enumerate(words) if word.startswith("@")), len(words))
    options = Options(words[:at])
    name, checkpoint, log = options.text("as"), options.text("checkpoint"), options.text("log")
    options.end()
    if name is None or at == len(words):
        raise WrongUsage
    if checkpoint is not None and len(checkpoint.encode()) > CHECKPOINT_BYTES_MAX:
        raise Refusal("bad_arguments", f"the checkpoint of a mark has at most {CHECKPOINT_BYTES_MAX} bytes")
    return Mark(check_name(topic), mark_name(name), _offset(words[at]), _excepted(words[at + 1 :]), checkpoint, log)


def _excepted(words: list[str]) -> list[int]:
    if not words:
        return []
    if words[0].lower() != "except" or len(words) == 1:
        raise WrongUsage
    if len(words) > EXCEPTED_MAX + 1:
        raise Refusal("bad_arguments", f"one line excepts at most {EXCEPTED_MAX} events; mark a part of them first")
    return [_offset(word) for word in words[1:]]


def _offset(word: str) -> int:
    offset = ref_of(word)
    if not isinstance(offset, int):
        raise WrongUsage
    return offset


def _unmark(rest: bytes) -> Unmark:
    topic, *words = words_of(rest, 2)
    options = Options(words)
    name = options.text("as")
    options.end()
    if name is None:
        raise WrongUsage
    return Unmark(check_name(topic), mark_name(name))


def _marks(rest: bytes) -> Marks:
    (topic,) = words_of(rest, 1, 1)
    return Marks(check_name(topic))


def _confirm(rest: bytes) -> Confirm:
    topic, *words = words_of(rest, 1)
    options = Options(words)
    change = read_confirmation_change(options)
    options.end()
    return Confirm(check_name(topic), change)


MARKING_VERBS: Final = (
    Verb(
        name="mark",
        parse=_mark,
        commands=(Mark,),
        usage="mark <topic> as=<name> [checkpoint=<text>] [log=<id>] @<offset> [except @<offset>...]",
        summary="reports that another system has every event below an offset, except the named ones; a mark only grows, and"
        " retention keeps the events above it",
    ),
    Verb(
        name="unmark",
        parse=_unmark,
        commands=(Unmark,),
        usage="unmark <topic> as=<name>",
        summary="forgets a mark, so that retention no longer waits for it",
    ),
    Verb(
        name="marks",
        parse=_marks,
        commands=(Marks,),
        usage="marks <topic>",
        summary="shows the marks of a topic with their lag, exceptions and checkpoints, as JSON",
    ),
    Verb(
        name="confirm",
        parse=_confirm,
        commands=(Confirm,),
        usage="confirm <topic> [after=<mark>,...|none] [within=5s]",
        summary="sets which marks must pass an event before it is confirmed as replicated; after the time within, it is"
        " confirmed as stored; without options, shows the setting",
    ),
)
