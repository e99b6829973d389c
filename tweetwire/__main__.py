"""``tweetwire NAME …`` and ``python -m tweetwire NAME …``: start a program, or run a command against a broker."""

import os
import sys
from typing import Final

from tweetwire.cli import is_command
from tweetwire.cli import main as run_command
from tweetwire.cli.catalogue import COMMANDS, GROUPS, PROGRAMS, nearest
from tweetwire.version import VERSION

__all__ = ["main"]

_HELP: Final = frozenset({"-h", "--help", "--help-all", "help"})


def main() -> int:
    """Start the program or run the command that the first word names.

    Returns the exit status, which is 2 if the word names neither.
    """
    words = sys.argv[1:]
    if words == ["--version"]:
        print(f"tweetwire {VERSION}")
        return 0
    if words[:1] == ["__complete"]:
        from tweetwire.cli.word_completion import print_candidates  # noqa: PLC0415 — only a shell asks for it

        return print_candidates(words[1:])
    if len(words) > 1 and words[0] == "help":
        # `tweetwire help tail` is how git and kubectl spell it.
        words = [*words[1:], "--help"]
    if not words or words[0] in _HELP:
        print(_help())
        return 0
    if is_command(words):
        return run_command(words)
    if words[0] in PROGRAMS:
        # The program replaces this process, so that it receives the signals and sets the exit status itself.
        os.execv(sys.executable, [sys.executable, "-m", PROGRAMS[words[0]].module, *words[1:]])  # noqa: S606
    print(f"tweetwire: {_unknown(words)}; see tweetwire --help", file=sys.stderr)
    return 2


def _unknown(words: list[str]) -> str:
    """Return a sentence for words that name neither a command nor a program."""
    family = [name for name in COMMANDS if name.startswith(f"{words[0]} ")]
    if family:
        given = f"there is no {' '.join(words[:2])!r}" if len(words) > 1 else f"{words[0]} needs another word"
        return f"{given}; write one of: {', '.join(family)}"
    similar = nearest(words[0])
    return f"there is no {words[0]!r}" + (f"; did you mean {similar}?" if similar else "")


def _help() -> str:
    sections = [
        (f"{group}:", {name: entry.summary for name, entry in COMMANDS.items() if entry.group == group})
        for group in GROUPS
    ]
    sections.append(("programs:", {name: program.summary for name, program in PROGRAMS.items()}))
    parts = ["usage: tweetwire COMMAND [FLAG …]"]
    for title, rows in sections:
        parts.append("\n".join([title, *(f"  {name:<15} {summary}" for name, summary in rows.items())]))
    parts.append(
        "tweetwire COMMAND --help shows the flags of a command with examples. Every\n"
        "command that talks to a broker takes --broker HOST:PORT after its name."
    )
    return "\n\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
