"""The table of all commands, made from the catalogue of the command line."""

from collections.abc import Iterator
from typing import Final

from tweetwire.cli.catalogue import COMMANDS, GROUPS, PROGRAMS, load_command
from tweetwire.cli.flag_help import usage_of

__all__ = ["commands_markdown"]

_HEAD: Final = "| command | |\n| --- | --- |"


def commands_markdown() -> str:
    """Return a section with a table for each group of commands, and one for the programs."""
    return "\n\n".join(_sections())


def _sections() -> Iterator[str]:
    for group in GROUPS:
        rows = [
            f"| `{usage_of(name, load_command(name)).removeprefix('tweetwire ')}` | {entry.summary} |"
            for name, entry in COMMANDS.items()
            if entry.group == group
        ]
        yield f"### {group.capitalize()}\n\n" + "\n".join([_HEAD, *rows])
    rows = [f"| `{name}` | {program.summary} |" for name, program in PROGRAMS.items()]
    yield "### Programs\n\n" + "\n".join([_HEAD, *rows])
