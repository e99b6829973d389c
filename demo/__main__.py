"""The command ``python -m demo``."""

import sys

from demo.run import serve
from demo.settings import DemoSettings
from tweetwire.runtime.program import run

if __name__ == "__main__":
    sys.exit(run(DemoSettings, serve, is_service=False))
