"""The verbs that concern the connection itself: ``hello``, ``ping``, ``help`` and ``quit``."""

from typing import ClassVar, Final

from tweetwire.protocol.names import check_name
from tweetwire.protocol.options import Options
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.verbs.verb import Command, Verb
from tweetwire.protocol.words import words_of

__all__ = ["SESSION_VERBS", "Hello", "Help", "Ping", "Quit"]


class Hello(Command):
    """``hello <name> [token=…] [quiet] [resume]``: name the client, and log it in."""

    permission: ClassVar = Permission.NONE
    name: str
    is_quiet: bool = False
    is_resuming: bool = False
    token: str | None = None

    def __repr__(self) -> str:
        """Leave out the token, so that no log shows it."""
        return f"Hello({self.name!r})"


class Help(Command):
    """``help [<verb>]``: list the verbs, or explain one."""

    permission: ClassVar = Permission.NONE
    verb: str | None


class Ping(Command):
    """``ping``: check that the broker answers."""

    permission: ClassVar = Permission.NONE


class Quit(Command):
    """``quit``: close the connection."""

    permission: ClassVar = Permission.NONE


def _hello(rest: bytes) -> Hello:
    name, *words = words_of(rest, 1)
    options = Options(words)
    command = Hello(check_name(name), options.flag("quiet"), options.flag("resume"), options.text("token"))
    options.end()
    return command


def _help(rest: bytes) -> Help:
    words = words_of(rest, 0, 1)
    return Help(words[0].lower() if words else None)


def _ping(rest: bytes) -> Ping:
    words_of(rest, 0, 0)
    return Ping()


def _quit(rest: bytes) -> Quit:
    words_of(rest, 0, 0)
    return Quit()


SESSION_VERBS: Final = (
    Verb(
        name="hello",
        parse=_hello,
        commands=(Hello,),
        usage="hello <name> [token=<token>] [quiet] [resume]",
        summary="names this client; quiet drops the +OK replies to ack, nack and begin; resume attaches the client again to the"
        " durable subscriptions that it had when it left",
    ),
    Verb(
        name="ping",
        parse=_ping,
        commands=(Ping,),
        usage="ping",
        summary="answers +PONG",
    ),
    Verb(
        name="help",
        parse=_help,
        commands=(Help,),
        usage="help [<command>]",
        summary="lists the commands, or explains one",
    ),
    Verb(
        name="quit",
        parse=_quit,
        commands=(Quit,),
        usage="quit",
        summary="closes this connection",
    ),
)
