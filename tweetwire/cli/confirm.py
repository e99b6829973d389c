"""Ask a person before something is destroyed."""

import sys
from typing import Annotated

from tweetwire.cli.flags import Flag
from tweetwire.cli.kinds import SWITCH
from tweetwire.protocol.errors import StartError

__all__ = ["YesSwitch", "confirm"]

YesSwitch = Annotated[bool, Flag(SWITCH, "do not ask", has_variable=False)]


def confirm(question: str, *, yes: bool) -> None:
    """Return if `yes` is true, or if a person answers the question with yes.

    Raises StartError for any other answer, and if stdin is not a terminal, so that a script cannot destroy data by accident.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise StartError(f"{question} Pass --yes, because stdin is not a terminal")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise StartError("nothing was changed")
