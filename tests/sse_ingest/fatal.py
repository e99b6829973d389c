"""Worker processes that die or hang at one fatal tweet, in ways that a worker cannot report."""

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from sse_ingest import worker
from sse_ingest.handover import RawEvent
from sse_ingest.worker import WorkerJob

__all__ = ["FATAL_ID", "hang", "kill", "kill_once", "run_out_of_memory"]

FATAL_ID = 99


def kill(job: WorkerJob, pipe: socket.socket) -> None:
    """Work, but die each time at the fatal tweet."""
    _work(lambda: os.kill(os.getpid(), signal.SIGKILL), job, pipe)


def kill_once(mark: Path, job: WorkerJob, pipe: socket.socket) -> None:
    """Work, but die at the fatal tweet the first time: if the file `mark` is missing, create it and die."""

    def die() -> None:
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    _work(die, job, pipe)


def hang(job: WorkerJob, pipe: socket.socket) -> None:
    """Work, but never return from the fatal tweet."""
    _work(lambda: time.sleep(60), job, pipe)


def run_out_of_memory(mark: Path, job: WorkerJob, pipe: socket.socket) -> None:
    """Work, but run out of memory at the fatal tweet the first time: if `mark` is missing, create it and raise."""

    def die() -> None:
        if not mark.exists():
            mark.touch()
            raise MemoryError

    _work(die, job, pipe)


def _work(die: Callable[[], object], job: WorkerJob, pipe: socket.socket) -> None:
    find = worker.find

    def find_or_die(event: RawEvent, *arguments: Any) -> Any:
        if b'"id": %d,' % FATAL_ID in event.data:
            die()
        return find(event, *arguments)

    with mock.patch.object(worker, "find", find_or_die):
        worker.work(job, pipe)
