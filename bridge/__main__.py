"""The commands `python -m bridge` and `python -m bridge verify`."""

import sys

from tweetwire.runtime.extras import needs_extra
from tweetwire.runtime.program import run

_EXTRA = ("the bridge", "bridge")

if sys.argv[1:2] == ["verify"]:
    with needs_extra(*_EXTRA):
        from bridge.verify import VerifySettings, verify

    sys.exit(run(VerifySettings, verify, sys.argv[2:], is_service=False))

with needs_extra(*_EXTRA):
    from bridge.serve import serve
    from bridge.settings import BridgeSettings

sys.exit(run(BridgeSettings, serve))
