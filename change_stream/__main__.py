"""`python -m change_stream`."""

import sys

from broker.program import run
from change_stream.publisher import serve
from change_stream.settings import Settings

sys.exit(run(Settings, serve))
