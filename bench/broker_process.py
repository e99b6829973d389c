"""A separate broker for each run: a process on a fresh folder and a free port."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.programs import folder, program

__all__ = ["broker_process", "processor_seconds", "resident_bytes"]


@contextmanager
def broker_process(*flags: str) -> Iterator[tuple[int, int]]:
    """Start a broker, and yield (port, pid); it ends with the block."""
    with folder() as home:
        words = ("broker", "--port", 0, "--metrics-port", 0, "--data-dir", home / "data", *flags)
        with program(home / "log", *words) as (port, process):
            yield port, process.pid


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.split("VmRSS:")[1].split()[0])


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process in seconds, in user and kernel mode."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")
