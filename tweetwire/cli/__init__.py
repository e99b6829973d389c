"""The broker's command line for people: ``tweetwire COMMAND``."""

from collections.abc import Sequence

from tweetwire.cli.catalogue import COMMANDS

__all__ = ["COMMANDS", "is_command", "main"]


def is_command(words: Sequence[str]) -> bool:
    """Whether the words begin with the name of a command, which has one or two words."""
    return _split(words) is not None


def main(words: Sequence[str]) -> int:
    """Run the command whose name the words begin with. Returns the exit status."""
    from tweetwire.cli.program import run_command_line  # noqa: PLC0415 — other programs start faster without it

    found = _split(words)
    if found is None:
        raise ValueError(f"{words[:1]} is not a command")
    return run_command_line(*found)


def _split(words: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """Return the name of the command that the words begin with, and the words after it."""
    for length in (2, 1):
        name = " ".join(words[:length])
        if len(words) >= length and name in COMMANDS:
            return name, words[length:]
    return None
