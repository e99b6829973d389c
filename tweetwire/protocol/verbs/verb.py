"""The types of a verb and of a command."""

from collections.abc import Callable
from typing import ClassVar

from msgspec import Struct

from tweetwire.protocol.permissions import Permission

__all__ = ["Command", "Verb"]


class Command(Struct):
    """A request of a client. Each kind is a subclass that declares the permission it needs."""

    permission: ClassVar[Permission]


class Verb(Struct, frozen=True, kw_only=True):
    """The first word of a line, with everything that the protocol knows of it.

    Attributes:
        name: The word itself, in lower case.
        long_name: A second word for the same verb.
        parse: Reads the rest of the line. It returns one of `commands`. It raises Refusal, or WrongUsage if the words do
            not match `usage`.
        commands: The kinds of command that `parse` returns.
        usage: The form of the line; ``help`` and the refusal of a wrong line show it.
        summary: The effect of the command; ``help`` shows it after the usage.
        example: A line that works; the refusal of a wrong line shows it after the usage.
    """

    name: str
    long_name: str | None = None
    parse: Callable[[bytes], Command]
    commands: tuple[type[Command], ...]
    usage: str
    summary: str
    example: str | None = None
