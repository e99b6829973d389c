"""D1: from ``make demo`` on a warm installation to the first statistics on a screen."""

import json
import subprocess
import sys

from bench.programs import folder

__all__ = ["first_statistics"]


def first_statistics() -> float:
    """Return the seconds until the demo's subscriber has the first window's statistics."""
    with folder() as home:
        words = ("--seconds", "60", "--free-ports", "--log-json", "--report", "json", "--data-dir", str(home))
        ended = subprocess.run(
            [sys.executable, "-m", "demo", *words],
            capture_output=True,
            text=True,
            check=False,
        )
    for line in ended.stderr.splitlines():
        if '"first statistics"' in line:
            return float(json.loads(line)["after_s"])
    raise RuntimeError(f"the demo ended with {ended.returncode} and showed no statistics:\n{ended.stderr[-2000:]}")
