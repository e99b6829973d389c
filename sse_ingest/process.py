"""One worker's process, seen from the ingester: started when it is needed, again after it was closed."""

import multiprocessing
import socket
import threading
from multiprocessing.process import BaseProcess

import anyio
from anyio.abc import UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from sse_ingest.handover import LENGTH, RawEvent, Reply, Task, decode_reply, frame
from sse_ingest.worker import Job, work

__all__ = ["CannotStart", "WorkerDied", "WorkerProcess"]


class CannotStart(Exception):
    """There is no process to be had: no memory, no process ids, no descriptors. It may pass."""


class WorkerDied(Exception):
    """The process ended, or did not answer in time, without handing back its events."""


class WorkerProcess:
    """A process that does `job`, and the way to it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._running: _Running | None = None

    async def carry_out(self, events: list[RawEvent], timeout_s: float) -> Reply:
        """Hand over `events` and wait for the reply. Raises `CannotStart` or `WorkerDied`."""
        if self._running is None:
            self._running = await _Running.start(self._job)
        try:
            with anyio.fail_after(timeout_s):
                return await self._running.exchange(Task(events))
        except TimeoutError as error:
            raise WorkerDied(f"no reply within {timeout_s:g} s") from error
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError) as error:
            raise WorkerDied("its process ended without a word") from error

    async def aclose(self) -> None:
        """End the process. It holds nothing that would need an orderly end."""
        running, self._running = self._running, None
        if running is not None:
            await running.aclose()


class _Running:
    def __init__(self, process: BaseProcess, stream: UNIXSocketStream) -> None:
        self._process = process
        self._stream = stream
        self._replies = BufferedByteReceiveStream(stream)

    @classmethod
    async def start(cls, job: Job) -> "_Running":
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
        return cls(process, await UNIXSocketStream.from_socket(ours))

    async def exchange(self, task: Task) -> Reply:
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
# A start goes over all processes there are, in a thread, and fails on one that another thread closes meanwhile.
_one_at_a_time = threading.Lock()


def _fork(job: Job, pipe: socket.socket) -> BaseProcess:
    process = _processes.Process(target=work, args=(job, pipe), daemon=True)
    with _one_at_a_time:
        process.start()
    return process


def _reap(process: BaseProcess) -> None:
    process.join()
    with _one_at_a_time:
        process.close()
