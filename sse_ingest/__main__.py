"""``python -m sse_ingest`` runs the ingester; ``python -m sse_ingest report`` writes a page about the stored tweets."""

import sys

from tweetwire.runtime.extras import needs_extra
from tweetwire.runtime.program import run

with needs_extra("the ingester", "ingest"):
    from sse_ingest.report.settings import ReportSettings
    from sse_ingest.report.write import write_report
    from sse_ingest.serve import serve
    from sse_ingest.settings import IngestSettings

if __name__ == "__main__":
    if sys.argv[1:2] == ["report"]:
        sys.exit(run(ReportSettings, write_report, sys.argv[2:], is_service=False))
    sys.exit(run(IngestSettings, serve))
