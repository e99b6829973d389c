"""``python -m sse_ingest``: the ingester; ``python -m sse_ingest report``: a picture of what it has stored."""

import sys

from broker.program import run
from sse_ingest.report.settings import ReportSettings
from sse_ingest.report.write import write_report
from sse_ingest.serve import serve
from sse_ingest.settings import Settings

if __name__ == "__main__":
    if sys.argv[1:2] == ["report"]:
        sys.exit(run(ReportSettings, write_report, sys.argv[2:]))
    sys.exit(run(Settings, serve))
