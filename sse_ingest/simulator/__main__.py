"""``python -m sse_ingest.simulator`` serves tweets until a signal."""

import sys

from sse_ingest.simulator.server import serve
from sse_ingest.simulator.settings import SimulatorSettings
from tweetwire.runtime.program import run

if __name__ == "__main__":
    sys.exit(run(SimulatorSettings, serve))
