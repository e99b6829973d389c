"""``python -m broker``: serves until SIGINT or SIGTERM, then drains and ends with status 0."""

import sys

from broker.program import run
from broker.serve import serve
from broker.settings import BrokerSettings

if __name__ == "__main__":
    sys.exit(run(BrokerSettings, serve))
