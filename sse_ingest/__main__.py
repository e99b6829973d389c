"""``python -m sse_ingest``: the ingester; ``python -m sse_ingest report``: a picture of what it has stored."""

import sys

from broker.program import run
from sse_ingest.serve import serve
from sse_ingest.settings import Settings

if __name__ == "__main__":
    sys.exit(run(Settings, serve))
