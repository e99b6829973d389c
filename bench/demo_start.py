"""D1: measure the time from ``make demo``, on a warm installation, to the first statistics on a screen."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterable

from bench.programs import folder

__all__ = ["first_statistics"]

_SECONDS = 120


def first_statistics() -> float:
    """Return the seconds until the demo shows the first window's statistics. Raises RuntimeError if it never does."""
    with folder() as home:
        words = ("--seconds", str(_SECONDS), "--free-ports", "--log-json", "--report", "json", "--data-dir", str(home))
        with subprocess.Popen(
            [sys.executable, "-m", "demo", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as demo:
            assert demo.stderr is not None
            seconds, said = _found(demo.stderr)
            demo.send_signal(signal.SIGINT)
            # Read the rest: the demo would wait forever, since its last messages are longer than a pipe holds.
            demo.stderr.read()
    if seconds is None:
        raise RuntimeError(f"the demo ended with {demo.returncode} and showed no statistics:\n{said}")
    return seconds


def _found(lines: Iterable[str]) -> tuple[float | None, str]:
    """Read up to the line of the first statistics. Return its seconds (None without such a line) and the last lines read."""
    said: list[str] = []
    for line in lines:
        said = [*said[-20:], line]
        if '"first statistics"' in line:
            return float(json.loads(line)["after_s"]), ""
    return None, "".join(said)
