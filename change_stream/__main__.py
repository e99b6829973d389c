"""The commands `python -m change_stream` and `python -m change_stream status`."""

import sys

from tweetwire.runtime.extras import needs_extra
from tweetwire.runtime.program import run

_EXTRA = ("the change stream", "change-stream")

if sys.argv[1:2] == ["status"]:
    with needs_extra(*_EXTRA):
        from change_stream.status import StatusSettings, report

    sys.exit(run(StatusSettings, report, sys.argv[2:], is_service=False))

with needs_extra(*_EXTRA):
    from change_stream.publisher import serve
    from change_stream.settings import ChangeStreamSettings

sys.exit(run(ChangeStreamSettings, serve))
