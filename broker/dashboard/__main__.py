"""``python -m broker.dashboard``: starts ``python -m dashboard``, with the environment variables of the old name, and warns."""

import os
import sys
from typing import Final

_OLD: Final = "TWEETWIRE_BROKER_DASHBOARD_"
_NEW: Final = "TWEETWIRE_DASHBOARD_"


def main() -> None:
    """Replace this process by ``python -m dashboard``."""
    print("python -m broker.dashboard has moved; write: python -m dashboard", file=sys.stderr, flush=True)
    old = {name: value for name, value in os.environ.items() if name.startswith(_OLD)}
    environment = {**{_NEW + name.removeprefix(_OLD): value for name, value in old.items()}, **os.environ}
    os.execve(sys.executable, [sys.executable, "-m", "dashboard", *sys.argv[1:]], environment)  # noqa: S606


if __name__ == "__main__":
    main()
