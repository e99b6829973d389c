"""`python -m change_stream`, and `python -m change_stream status`."""

import sys

from broker.program import run

if sys.argv[1:2] == ["status"]:
    from change_stream.status import StatusSettings, report

    sys.exit(run(StatusSettings, report, sys.argv[2:]))

from change_stream.publisher import serve
from change_stream.settings import Settings

sys.exit(run(Settings, serve))
