"""`python -m change_stream`, and `python -m change_stream status`."""

import sys

from broker.program import run
from change_stream.publisher import serve
from change_stream.settings import Settings
from change_stream.status import StatusSettings, report

if sys.argv[1:2] == ["status"]:
    sys.exit(run(StatusSettings, report, sys.argv[2:]))
sys.exit(run(Settings, serve))
