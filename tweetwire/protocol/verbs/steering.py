"""The verbs with which a user steers a durable subscription: ``seek``, ``pause``, ``resume`` and ``discard``."""

from typing import ClassVar, Final

from tweetwire.protocol.names import check_name
from tweetwire.protocol.options import Options
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.positions import Position, read_position
from tweetwire.protocol.verbs.verb import Command, Verb
from tweetwire.protocol.words import WrongUsage, ref_of, words_of

__all__ = ["STEERING_VERBS", "Discard", "Pause", "Resume", "Seek"]


class Seek(Command):
    """``seek <topic> as=<subscription> to=<position>``: continue a subscription at another position."""

    permission: ClassVar = Permission.OWN
    topic: str
    name: str
    to: Position


class Pause(Command):
    """``pause <topic> as=<subscription>``: deliver no more events to a subscription."""

    permission: ClassVar = Permission.OWN
    topic: str
    name: str


class Resume(Command):
    """``resume <topic> as=<subscription>``: deliver events to a subscription again."""

    permission: ClassVar = Permission.OWN
    topic: str
    name: str


class Discard(Command):
    """``discard <topic> as=<subscription> <ref>…|all``: settle dead events. `refs` is None for all dead events."""

    permission: ClassVar = Permission.OWN
    topic: str
    name: str
    refs: list[int | str] | None


def _seek(rest: bytes) -> Seek:
    topic, *words = words_of(rest, 3)
    options = Options(words)
    name, to = options.text("as"), options.text("to")
    options.end()
    if name is None or to is None:
        raise WrongUsage
    return Seek(check_name(topic), check_name(name), read_position(to))


def _pause(rest: bytes) -> Pause:
    return Pause(*_topic_and_name(rest))


def _resume(rest: bytes) -> Resume:
    return Resume(*_topic_and_name(rest))


def _topic_and_name(rest: bytes) -> tuple[str, str]:
    topic, *words = words_of(rest, 2)
    options = Options(words)
    name = options.text("as")
    options.end()
    if name is None:
        raise WrongUsage
    return check_name(topic), check_name(name)


def _discard(rest: bytes) -> Discard:
    # The option stands before the refs, so that an id may look like an option.
    topic, option, *refs = words_of(rest, 3)
    name = Options([option]).text("as")
    if name is None:
        raise WrongUsage
    return Discard(check_name(topic), check_name(name), None if refs == ["all"] else [ref_of(ref) for ref in refs])


STEERING_VERBS: Final = (
    Verb(
        name="seek",
        parse=_seek,
        commands=(Seek,),
        usage="seek <topic> as=<subscription> to=<offset>|earliest|latest|<time>",
        summary="continues a subscription at another place: every event from there on waits without failed tries, every"
        " event before it is settled",
    ),
    Verb(
        name="pause",
        parse=_pause,
        commands=(Pause,),
        usage="pause <topic> as=<subscription>",
        summary="delivers no more events to a subscription until resume; those in flight can still be settled",
    ),
    Verb(
        name="resume",
        parse=_resume,
        commands=(Resume,),
        usage="resume <topic> as=<subscription>",
        summary="delivers events to a paused subscription again",
    ),
    Verb(
        name="discard",
        parse=_discard,
        commands=(Discard,),
        usage="discard <topic> as=<subscription> <ref>...|all",
        summary="settles dead events of a subscription without delivering them",
    ),
)
