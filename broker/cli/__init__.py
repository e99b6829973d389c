"""The broker's command line for people: ``python -m broker COMMAND``."""

from collections.abc import Sequence
from typing import Final

__all__ = ["COMMANDS", "main"]

COMMANDS: Final = (
    "topics",
    "subscriptions",
    "tail",
    "dead",
    "redrive",
    "explain",
    "chain",
    "stats",
    "describe",
    "schema",
    "comment",
    "mock",
    "export",
    "shell",
    "fsck",
)


def main(argv: Sequence[str]) -> int:
    """Carry out the command that `argv` begins with, one of `COMMANDS`. Returns the exit status."""
    from broker.cli.program import carry_out  # noqa: PLC0415 — a broker that only serves starts without all of them

    return carry_out(argv)
