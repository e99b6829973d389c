"""The verbs of publishers: ``pub``, and those that read and change the position of a producer."""

from typing import ClassVar, Final

from tweetwire.protocol.confirmation import ConfirmationChange, split_confirmation
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.event_lines import EVENT_EXAMPLE, parse_typed_event
from tweetwire.protocol.events import IncomingEvent
from tweetwire.protocol.fencing import NO_EPOCH, producer_at, split_epoch
from tweetwire.protocol.names import check_name, topic_name
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.timing import TimedEvent
from tweetwire.protocol.verbs.verb import Command, Verb
from tweetwire.protocol.words import OFFSET_MAX, WrongUsage, split_first_word, text_of, whole_number, words_of

__all__ = ["PUBLISHING_VERBS", "Checkpoint", "Forget", "Last", "Publish", "Skip"]

_CHECKPOINT_WORDS: Final = 3


class Publish(Command, gc=False):
    """``pub <topic> [options] <event>``: store events. Consecutive lines for one topic are one command.

    `wanted` replaces the topic's setting for the confirmations of these events; None keeps the setting. If the command
    `is_timed`, some of its events may be of the type `TimedEvent`. `epoch` is that of the events' producers.
    """

    permission: ClassVar = Permission.PUBLISH
    topic: str
    events: list[IncomingEvent]
    wanted: ConfirmationChange | None = None
    is_timed: bool = False
    epoch: int = NO_EPOCH


class Last(Command):
    """``last <topic> <producer>``: show the position of a producer."""

    permission: ClassVar = Permission.SUBSCRIBE
    topic: str
    producer: str


class Checkpoint(Command):
    """``checkpoint <topic> <producer>[@<epoch>] <string>``: move the checkpoint of a producer without an event."""

    permission: ClassVar = Permission.PUBLISH
    topic: str
    producer: str
    value: str
    epoch: int = NO_EPOCH


class Skip(Command):
    """``skip <topic> <producer>[@<epoch>] <sequence>``: the producer gives up its refused events up to `sequence`."""

    permission: ClassVar = Permission.PUBLISH
    topic: str
    producer: str
    sequence: int
    epoch: int = NO_EPOCH


class Forget(Command):
    """``forget <topic> <producer>``: the topic no longer knows the producer."""

    permission: ClassVar = Permission.MANAGE
    topic: str
    producer: str


def _publish(rest: bytes) -> Publish:
    word, raw = split_first_word(rest)
    if not raw:
        raise WrongUsage
    topic = topic_name(word)
    wanted, raw = split_confirmation(raw)
    epoch, raw = split_epoch(raw)
    if not raw:
        raise WrongUsage
    event = parse_typed_event("pub", topic, raw)
    return Publish(topic, [event], wanted=wanted, is_timed=isinstance(event, TimedEvent), epoch=epoch)


def _last(rest: bytes) -> Last:
    topic, producer = words_of(rest, 2, 2)
    return Last(check_name(topic), check_name(producer))


def _checkpoint(rest: bytes) -> Checkpoint:
    words = text_of(rest).split(None, 2)
    if len(words) < _CHECKPOINT_WORDS:
        raise WrongUsage
    topic, producer, value = words
    name, epoch = producer_at(producer)
    return Checkpoint(check_name(topic), name, value.rstrip(), epoch)


def _skip(rest: bytes) -> Skip:
    topic, producer, number = words_of(rest, 3, 3)
    sequence = whole_number(number, OFFSET_MAX)
    if sequence is None:
        raise Refusal("bad_arguments", f"sequence is a whole number from 0 to {OFFSET_MAX}")
    name, epoch = producer_at(producer)
    return Skip(check_name(topic), name, sequence, epoch)


def _forget(rest: bytes) -> Forget:
    topic, producer = words_of(rest, 2, 2)
    return Forget(check_name(topic), check_name(producer))


PUBLISHING_VERBS: Final = (
    Verb(
        name="pub",
        long_name="publish",
        parse=_publish,
        commands=(Publish,),
        usage="pub <topic> [delay=5m|at=<time>] [expires=10m|<time>] [after=<mark>,...|none] [within=5s] [epoch=<n>] <event>",
        example=f"pub <topic> {EVENT_EXAMPLE}",
        summary='publishes an event, for example pub tweets {"id":"1","priority":3,"msg":"tweet 1"}; it is delivered'
        " neither before its delay or time, nor after it expires",
    ),
    Verb(
        name="last",
        parse=_last,
        commands=(Last,),
        usage="last <topic> <producer>",
        summary="shows the last offset, sequence and checkpoint of a producer, or null",
    ),
    Verb(
        name="checkpoint",
        parse=_checkpoint,
        commands=(Checkpoint,),
        usage="checkpoint <topic> <producer>[@<epoch>] <string>",
        summary="moves the checkpoint of a producer without an event",
    ),
    Verb(
        name="skip",
        parse=_skip,
        commands=(Skip,),
        usage="skip <topic> <producer>[@<epoch>] <sequence>",
        summary="lets a producer give up its refused events up to a sequence and continue after it",
    ),
    Verb(
        name="forget",
        parse=_forget,
        commands=(Forget,),
        usage="forget <topic> <producer>",
        summary="forgets a producer, which makes room for another one; its events stay, and events that it sends again are"
        " stored again; for administrators",
    ),
)
