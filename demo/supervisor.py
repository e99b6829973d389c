"""Run programs that need each other. Start them in parallel if possible, restart them when they die, and end them in order."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from demo.child import Child
from demo.programs import Program
from tweetwire.protocol.errors import StartError

__all__ = ["Supervisor", "supervised"]


class Supervisor:
    """The running programs by name, in the order of `programs`."""

    def __init__(self, programs: Sequence[Program], log_dir: Path) -> None:
        log_dir.mkdir(parents=True, exist_ok=True)
        self.children: dict[str, Child] = {}
        for program in programs:
            self.children[program.name] = Child(program, log_dir, self._needs_of(program))

    def __getitem__(self, name: str) -> Child:
        return self.children[name]

    def __contains__(self, name: str) -> bool:
        return name in self.children

    async def wait_ready(self) -> None:
        """Wait until every program has been ready."""
        for child in self.children.values():
            await child.became_ready.wait()

    async def stop(self, *names: str) -> None:
        """End these programs together, ignoring unknown names. Return once all are gone."""
        async with anyio.create_task_group() as tasks:
            for name in names:
                if name in self.children:
                    tasks.start_soon(self.children[name].stop)

    async def stop_all(self) -> None:
        """End all programs, the last one first, so that none outlives a program it needs."""
        for name in reversed(self.children):
            await self.stop(name)

    def _needs_of(self, program: Program) -> Callable[[], list[Child]]:
        return lambda: [self.children[name] for name in program.needs if name in self.children]


@asynccontextmanager
async def supervised(programs: Sequence[Program], log_dir: Path) -> AsyncIterator[Supervisor]:
    """Run `programs` until the end of the block. No program is left running, however the block ends.

    Raises:
        StartError: a program cannot start; this also ends the block.
    """
    supervisor = Supervisor(programs, log_dir)
    failures: list[StartError] = []
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as block:
            for child in supervisor.children.values():
                tasks.start_soon(_keep, child, failures, block)
            try:
                yield supervisor
            except StartError as error:
                failures.append(error)
            finally:
                with anyio.CancelScope(shield=True):
                    await supervisor.stop_all()
    if failures:
        raise failures[0]


async def _keep(child: Child, failures: list[StartError], block: anyio.CancelScope) -> None:
    # Shield this, so that a cancellation does not abandon the children: `stop` ends them in order.
    with anyio.CancelScope(shield=True):
        try:
            await child.run()
        except StartError as error:
            failures.append(error)
            block.cancel()
