"""``python -m broker``: serves until SIGINT or SIGTERM, then drains. With a command, it sends that to a running broker."""

import sys
from collections.abc import Sequence

from tweetwire.cli import is_command
from tweetwire.cli import main as run_command_line
from tweetwire.runtime.extras import needs_extra
from tweetwire.runtime.program import run

with needs_extra("the broker", "broker"):
    from broker.serve import serve
    from broker.settings import BrokerSettings


class Program(BrokerSettings):
    __doc__ = (
        f"{BrokerSettings.__doc__} `tweetwire --help` lists the commands that talk to a broker."
        " `tweetwire fsck DIRECTORY` checks the data directory of a broker that is stopped."
    )


def main(argv: Sequence[str]) -> int:
    """Carry out a command, or serve. Returns the exit status."""
    if is_command(argv):
        return run_command_line(argv)
    return run(Program, serve, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
