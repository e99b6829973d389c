"""One program as a process: started, watched until it is ready, restarted when it dies, ended on request."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread

from demo.programs import Death, Program, ProgramState, is_explained, say_status
from tweetwire.backoff import Backoff
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.launching import ReadyLine
from tweetwire.runtime.program import logger

__all__ = ["Child"]

_LEASH = Path(__file__).with_name("leash.py")
_POLL_S = 0.05
_STEADY_S = 30.0
"""A program that served this long counts as repaired, so its backoff begins with the shortest pause again."""
_NEVER_READY_MOST = 5
_NEED_RETURNED_S = 30.0
"""If a program ends within this time after a server that it needs is ready again, the server counts as the cause."""


class Child:
    """A program and its process.

    The process runs in a separate session, so that Ctrl-C in the terminal reaches the supervisor only. When the process has
    ended, its process group is killed, so that no process that it started stays.
    """

    def __init__(self, program: Program, log_dir: Path, needs: Callable[[], list["Child"]]) -> None:
        self.program = program
        self.log_path = program.log or log_dir / f"{program.name}.log"
        self.state = ProgramState.WAITING
        self.deaths: list[Death] = []
        self.address = program.address
        self.pid: int | None = None
        self.ready_at = math.nan
        self.became_ready = anyio.Event()
        self._needs = needs
        self._process: anyio.abc.Process | None = None
        self._stopping = anyio.Event()
        self._gone = anyio.Event()
        self._backoff = Backoff(first_s=0.25, max_s=8.0)
        self._pause_s = 0.0

    @property
    def is_ready(self) -> bool:
        return self.state is ProgramState.READY

    @property
    def restarts(self) -> int:
        return len(self.deaths)

    async def run(self) -> None:
        """Keep the program running until it is stopped or has ended on purpose.

        Raises:
            StartError: the program cannot start at all.
        """
        try:
            await self._wait_for_needs()
            while not self._stopping.is_set() and not await self._live():
                await self._pause()
        finally:
            self._sweep()
            self.state = ProgramState.ENDED if self.state is ProgramState.ENDED else ProgramState.STOPPED
            self._gone.set()

    async def stop(self) -> None:
        """Send the program SIGTERM, wait for its end, and kill it if it does not end in time."""
        self._stopping.set()
        self._terminate()
        with anyio.move_on_after(self.program.stop_within_s) as patience:
            await self._gone.wait()
        if patience.cancelled_caught:
            logger().warning(f"{self.program.name} did not end in time, killing it", log=str(self.log_path))
            self._sweep()
            await self._gone.wait()

    def last_words(self) -> str:
        """Return the last line of the log that contains text, in which a program says why it ended."""
        with suppress(OSError), self.log_path.open("rb") as log:
            log.seek(max(0, self.log_path.stat().st_size - 16_384))
            # An exception group is printed with a frame around its last line.
            lines = [line.strip("|+- ") for line in log.read().decode(errors="replace").splitlines()]
            return next((line for line in reversed(lines) if line), "")
        return ""

    async def _wait_for_needs(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._give_up_when_stopping, tasks.cancel_scope)
            for need in self._needs():
                await need.became_ready.wait()
            tasks.cancel_scope.cancel()

    async def _give_up_when_stopping(self, scope: anyio.CancelScope) -> None:
        await self._stopping.wait()
        scope.cancel()

    async def _live(self) -> bool:
        """Run the process once. Returns True if it must not be restarted, since it was stopped or ended on purpose."""
        self.state = ProgramState.STARTING
        ready_line = ReadyLine(self.log_path, self.program.ready)
        self._process = await self._open()
        self.pid = self._process.pid
        if self._stopping.is_set():  # stopped while the process was being started
            self._terminate()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_ready, ready_line)
            status = await self._process.wait()
            tasks.cancel_scope.cancel()
        self._sweep()
        self.pid = None
        if self._stopping.is_set():
            return True
        if status == 0 and self.program.may_end:
            self.state = ProgramState.ENDED
            return True
        self._note_death(status)
        return False

    async def _open(self) -> anyio.abc.Process:
        leash = [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid())]
        with self.log_path.open("ab") as log:
            return await anyio.open_process(
                [*leash, *self.program.argv],
                stdin=subprocess.DEVNULL,
                stdout=log if self.program.log is None else subprocess.DEVNULL,
                stderr=log if self.program.log is None else subprocess.DEVNULL,
                start_new_session=True,
            )

    async def _watch_ready(self, ready_line: ReadyLine) -> None:
        while (address := ready_line.address()) is None:
            await anyio.sleep(_POLL_S)
        self.address = address or self.address
        if self.program.prepare is not None:
            await anyio.to_thread.run_sync(self.program.prepare, abandon_on_cancel=True)
        self.state = ProgramState.READY
        self.ready_at = time.time()
        self.became_ready.set()

    def _note_death(self, status: int) -> None:
        was_steady = self.is_ready and time.time() - self.ready_at > _STEADY_S
        if was_steady:
            self._backoff.reset()
        self._pause_s = self._backoff.next_pause_s()
        reason = f"{say_status(status)}: {self.last_words()}" if status > 0 else say_status(status)
        self.deaths.append(Death(time.time(), status, reason, is_explained(status, self._is_need_away())))
        self.state = ProgramState.RESTARTING
        logger().warning(f"{self.program.name} {reason}", restarts=self.restarts, log=str(self.log_path))
        if not self.became_ready.is_set() and (status == 2 or self._backoff.failures >= _NEVER_READY_MOST):
            raise StartError(f"{self.program.name} {reason or 'does not start'}; see its log: {self.log_path}")

    def _is_need_away(self) -> bool:
        now = time.time()
        return any(
            not need.is_ready or (need.deaths and now - max(need.ready_at, need.deaths[-1].at) < _NEED_RETURNED_S)
            for need in self._needs()
        )

    async def _pause(self) -> None:
        with anyio.move_on_after(self._pause_s):
            await self._stopping.wait()

    def _terminate(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.terminate()

    def _sweep(self) -> None:
        if self.pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
