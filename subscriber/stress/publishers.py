"""The publishers of a run: separate processes that begin together and report their results at the end."""

import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from subscriber.stress.publishing import Offered, PublishSettings
from subscriber.stress.settings import SubscriberSettings
from tweetwire.protocol.errors import StartError

__all__ = ["Publishers"]

HEAD_START_S: Final = 0.2
START_S: Final = 120.0


class Publishers:
    """The publisher processes, which share the rate."""

    def __init__(self, settings: SubscriberSettings, rate: float) -> None:
        self._settings = settings
        self._rate = rate
        self._run = f"load-{os.getpid()}-{secrets.token_hex(3)}"
        self._processes: list[Process] = []
        self._lines: list[AsyncIterator[str]] = []

    @asynccontextmanager
    async def start(self) -> AsyncIterator[None]:
        """Start the processes and wait until they are connected. At the end of the block, end those that still run."""
        try:
            for number in range(self._settings.publishers):
                self._processes.append(await self._process(number))
            self._lines = [_lines(process) for process in self._processes]
            for lines in self._lines:
                if await _next(lines) != "ready":
                    raise StartError("a publisher did not start; its messages are above")
            yield
        finally:
            for process in self._processes:
                if process.returncode is None:
                    process.terminate()
            with anyio.CancelScope(shield=True):
                for process in self._processes:
                    await process.aclose()

    async def run(self) -> tuple[int, list[Offered]]:
        """Let all processes publish, beginning at the start of a second.

        Returns:
            The beginning (seconds since 1970) and the result of each process, once all have finished.
        """
        began_at = float(int(time.time() + HEAD_START_S) + 1)
        for process in self._processes:
            assert process.stdin is not None  # noqa: S101 — it was opened with a pipe
            await process.stdin.send(f"go {began_at}\n".encode())
        told = [await _next(lines) for lines in self._lines]
        if not all(told):
            raise StartError("a publisher ended without a result; its messages are above")
        return int(began_at), [msgspec.json.decode(line, type=Offered) for line in told]

    async def _process(self, number: int) -> Process:
        own = self._settings.login_variables(PublishSettings.model_config)
        return await anyio.open_process(self._words(number), stderr=None, env={**os.environ, **own})

    def _words(self, number: int) -> Sequence[str]:
        settings = self._settings
        return [
            *(sys.executable, "-m", "subscriber", "publish", "--on-go", "--broker", settings.broker),
            *(word for topic in settings.topic for word in ("--topic", topic)),
            *("--rate", str(self._rate / settings.publishers), "--duration", f"{settings.seconds or 1}s"),
            *(word for size in settings.size for word in ("--size", str(size))),
            *("--priorities", str(settings.priorities), "--name", f"{self._run}-{number}"),
            *("--seed", str(settings.seed + 1000 * number), "--log-level", "warning"),
        ]


async def _lines(process: Process) -> AsyncIterator[str]:
    assert process.stdout is not None  # noqa: S101 — it was opened with a pipe
    rest = ""
    async for text in TextReceiveStream(process.stdout):
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            yield line


async def _next(lines: AsyncIterator[str]) -> str:
    return await anext(lines, "")
