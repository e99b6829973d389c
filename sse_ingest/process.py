"""The ingester's side of a worker process, which is started on demand, and again after it was closed."""

import multiprocessing
import socket
import threading
from multiprocessing.process import BaseProcess

import anyio
from anyio.abc import UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from sse_ingest.handover import LENGTH, RawEvent, Reply, WorkerTask, decode_reply, frame
from sse_ingest.worker import WorkerJob, work

__all__ = ["CannotStart", "WorkerDied", "WorkerProcess"]


class CannotStart(Exception):
    """No process can be started now, because memory, process ids or descriptors are exhausted."""


class WorkerDied(Exception):
    """The process ended, or did not reply in time."""


class WorkerProcess:
    """A process that does `job`, and the socket to it."""

    def __init__(self, job: WorkerJob) -> None:
        self._job = job
        self._running: _Running | None = None

    async def exchange_task(self, events: list[RawEvent], timeout_s: float) -> Reply:
        """Send `events` and wait for the reply. Raises `CannotStart` or `WorkerDied`."""
        if self._running is None:
            self._running = await _Running.start(self._job)
        try:
            with anyio.fail_after(timeout_s):
                return await self._running.exchange(WorkerTask(events))
        except TimeoutError as error:
            raise WorkerDied(f"no reply within {timeout_s:g} s") from error
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError) as error:
            raise WorkerDied("its process ended without a report") from error

    async def aclose(self) -> None:
        """Kill the process, which holds nothing that needs an orderly end."""
        running, self._running = self._running, None
        if running is not None:
            await running.aclose()


class _Running:
    def __init__(self, process: BaseProcess, stream: UNIXSocketStream) -> None:
        self._process = process
        self._stream = stream
        self._replies = BufferedByteReceiveStream(stream)

    @classmethod
    async def start(cls, job: WorkerJob) -> "_Running":
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise CannotStart(str(error)) from error
        with theirs:
            try:
                # A fork takes milliseconds, but the first one starts the fork server.
                process = await anyio.to_thread.run_sync(_fork, job, theirs)
            except (OSError, EOFError) as error:
                ours.close()
                raise CannotStart(str(error) or type(error).__name__) from error
            except BaseException:
                # A cancellation arrives before the thread begins, so there is no process to end yet.
                ours.close()
                raise
        return cls(process, await UNIXSocketStream.from_socket(ours))

    async def exchange(self, task: WorkerTask) -> Reply:
        await self._stream.send(frame(task))
        head = await self._replies.receive_exactly(LENGTH)
        return decode_reply(await self._replies.receive_exactly(int.from_bytes(head, "big")))

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._stream.aclose()
            self._process.kill()
            await anyio.to_thread.run_sync(_reap, self._process)


_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["sse_ingest.warm"])
# `start` and `close` visit the list of all processes, and fail at a process that another thread closes meanwhile.
_one_at_a_time = threading.Lock()


def _fork(job: WorkerJob, pipe: socket.socket) -> BaseProcess:
    process = _processes.Process(target=work, args=(job, pipe), daemon=True)
    with _one_at_a_time:
        process.start()
    return process


def _reap(process: BaseProcess) -> None:
    process.join()
    with _one_at_a_time:
        process.close()
