"""A broker of its own for each run: a process on a fresh folder and a free port."""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["broker_process", "resident_bytes"]

_READY = re.compile(r"ready on [^\s\"]+:(\d+)")
_START_S = 20.0


@contextmanager
def broker_process(*flags: str) -> Iterator[tuple[int, int]]:
    """Give (port, pid) of a broker that ends with the block."""
    with tempfile.TemporaryDirectory(prefix="tweetwire-bench-", dir=".") as folder:
        log = Path(folder) / "log"
        command = [sys.executable, "-m", "broker", "--port", "0", "--metrics-port", "0", "--data-dir", f"{folder}/data"]
        with log.open("wb") as stderr, subprocess.Popen([*command, *flags], stderr=stderr) as process:
            try:
                yield _wait_for_port(log, process), process.pid
            finally:
                process.terminate()


def _wait_for_port(log: Path, process: "subprocess.Popen[bytes]") -> int:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        found = _READY.search(log.read_text())
        if found:
            return int(found[1])
        time.sleep(0.02)
    raise RuntimeError(f"the broker did not start:\n{log.read_text()}")


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.split("VmRSS:")[1].split()[0])
