"""``python -m broker``: serves until SIGINT or SIGTERM, then drains; with a command, talks to a broker that serves."""

import sys
from collections.abc import Sequence

from broker.cli import COMMANDS
from broker.cli import main as carry_out
from broker.program import run
from broker.serve import serve
from broker.settings import BrokerSettings


class Program(BrokerSettings):
    __doc__ = (
        f"{BrokerSettings.__doc__} Without a command it serves; with one it talks to a broker that does:"
        f" {', '.join(COMMANDS)} (python -m broker COMMAND --help)."
    )


def main(argv: Sequence[str]) -> int:
    """Carry out a command, or serve. Returns the exit status."""
    if argv and argv[0] in COMMANDS:
        return carry_out(argv)
    return run(Program, serve, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
