"""One program as a process: started, watched until it is ready, started again when it dies, ended when told."""

import math
import os
import re
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

from broker.errors import StartError
from broker.program import logger
from demo.programs import Death, Program, State, backoff_s, is_explained, say_status

__all__ = ["Child"]

_LEASH = Path(__file__).with_name("leash.py")
_POLL_S = 0.05
_STEADY_S = 30.0
"""A program that served this long had no part in its earlier deaths, so the back-off starts anew."""
_NEVER_READY_MOST = 5
_NEED_RETURNED_S = 30.0
"""How long after a server came back the end of a program that needs it still counts as caused by it."""


class Child:
    """A program and its process.

    It runs in a session of its own, so that a Ctrl-C in the terminal reaches the supervisor alone. Its whole process
    group is swept when it is gone, so that nothing it started stays.
    """

    def __init__(self, program: Program, log_dir: Path, needs: Callable[[], list["Child"]]) -> None:
        self.program = program
        self.log_path = program.log or log_dir / f"{program.name}.log"
        self.state = State.WAITING
        self.deaths: list[Death] = []
        self.address = program.address
        self.pid: int | None = None
        self.ready_at = math.nan
        self.became_ready = anyio.Event()
        self._needs = needs
        self._process: anyio.abc.Process | None = None
        self._stopping = anyio.Event()
        self._gone = anyio.Event()
        self._in_a_row = 0

    @property
    def is_ready(self) -> bool:
        return self.state is State.READY

    @property
    def restarts(self) -> int:
        return len(self.deaths)

    async def run(self) -> None:
        """Keep the program running until it is stopped or has ended by itself.

        Raises StartError where it cannot start at all.
        """
        try:
            await self._wait_for_needs()
            while not self._stopping.is_set() and not await self._live():
                await self._pause()
        finally:
            self._sweep()
            self.state = State.ENDED if self.state is State.ENDED else State.STOPPED
            self._gone.set()

    async def stop(self) -> None:
        """Ask the program to end (SIGTERM), wait for it, and kill what does not end in time."""
        self._stopping.set()
        self._terminate()
        with anyio.move_on_after(self.program.stop_within_s) as patience:
            await self._gone.wait()
        if patience.cancelled_caught:
            logger().warning(f"{self.program.name} did not end in time and is killed", log=str(self.log_path))
            self._sweep()
            await self._gone.wait()

    def last_words(self) -> str:
        """Return the last line of its log that has words, where a program says why it ended."""
        with suppress(OSError), self.log_path.open("rb") as log:
            log.seek(max(0, self.log_path.stat().st_size - 16_384))
            # A group of exceptions is drawn with a frame around its last words.
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
        """Run the process once. Returns whether its end was a good one, for good."""
        self.state = State.STARTING
        log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._process = await self._open()
        self.pid = self._process.pid
        if self._stopping.is_set():  # told so while the process was being made
            self._terminate()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_ready, log_start)
            status = await self._process.wait()
            tasks.cancel_scope.cancel()
        self._sweep()
        self.pid = None
        if self._stopping.is_set():
            return True
        if status == 0 and self.program.may_end:
            self.state = State.ENDED
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

    async def _watch_ready(self, log_start: int) -> None:
        pattern = re.compile(self.program.ready.encode())
        while (match := self._search(pattern, log_start)) is None:
            await anyio.sleep(_POLL_S)
        if match.groups():
            self.address = match[1].decode()
        if self.program.prepare is not None:
            await anyio.to_thread.run_sync(self.program.prepare, abandon_on_cancel=True)
        self.state = State.READY
        self.ready_at = time.time()
        self.became_ready.set()

    def _search(self, pattern: re.Pattern[bytes], log_start: int) -> re.Match[bytes] | None:
        with self.log_path.open("rb") as log:
            log.seek(log_start)
            return pattern.search(log.read())

    def _note_death(self, status: int) -> None:
        was_steady = self.is_ready and time.time() - self.ready_at > _STEADY_S
        self._in_a_row = 1 if was_steady else self._in_a_row + 1
        reason = f"{say_status(status)}: {self.last_words()}" if status > 0 else say_status(status)
        self.deaths.append(Death(time.time(), status, reason, is_explained(status, self._is_need_away())))
        self.state = State.RESTARTING
        logger().warning(f"{self.program.name} {reason}", restarts=self.restarts, log=str(self.log_path))
        if not self.became_ready.is_set() and (status == 2 or self._in_a_row >= _NEVER_READY_MOST):
            raise StartError(f"{self.program.name} {reason or 'does not start'}; its log: {self.log_path}")

    def _is_need_away(self) -> bool:
        now = time.time()
        return any(
            not need.is_ready or (need.deaths and now - max(need.ready_at, need.deaths[-1].at) < _NEED_RETURNED_S)
            for need in self._needs()
        )

    async def _pause(self) -> None:
        with anyio.move_on_after(backoff_s(self._in_a_row)):
            await self._stopping.wait()

    def _terminate(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.terminate()

    def _sweep(self) -> None:
        if self.pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
