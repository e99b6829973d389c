"""``python -m sse_ingest.simulator``: serve tweets until a signal."""

import sys

from broker.program import run
from sse_ingest.simulator.server import serve
from sse_ingest.simulator.settings import SimulatorSettings

if __name__ == "__main__":
    sys.exit(run(SimulatorSettings, serve))
