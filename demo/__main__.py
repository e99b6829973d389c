"""``python -m demo``."""

import sys

from broker.program import run
from demo.run import serve
from demo.settings import DemoSettings

if __name__ == "__main__":
    sys.exit(run(DemoSettings, serve))
