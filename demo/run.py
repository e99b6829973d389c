"""One run of the demo, from the first port to the closing check."""

import os
import sys
import time
from contextlib import ExitStack
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from rich.console import Console

from broker import Client, SyncClient
from broker.errors import StartError
from broker.program import logger, ready
from demo.check import Row, is_right
from demo.ending import end_in_order
from demo.mongod import ReplicaSet, mongodb
from demo.observer import Observer
from demo.programs import State
from demo.settings import DemoSettings
from demo.stack import Addresses, programs_of, replica_set_of, resolve
from demo.supervisor import Supervisor, supervised
from demo.view import View, check_table, showing
from spark.java import check_java

__all__ = ["serve"]

_READY_WITHIN_S = 120.0
_LOOK_EVERY_S = 1.0
_WIDTH = 120
"""Columns of the closing table where there is no terminal to ask."""


class Demo:
    """One run: the programs, what is known of them, and the ways in which it comes to its end."""

    def __init__(self, settings: DemoSettings, at: Addresses, stop: anyio.Event) -> None:
        self.settings = settings
        self.at = at
        self.stop = stop
        self.opening: dict[str, Any] = {}
        self._began_at = time.monotonic()

    def note_opening(self) -> None:
        """Ask the broker how things stand before the subscriber starts; runs each time the broker has started."""
        if not self.opening:
            with SyncClient(self.at.broker_address, name="demo") as client:
                self.opening = client.stats()

    async def run(self, supervisor: Supervisor, view: View) -> list[Row]:
        """Start, watch, end; returns the closing check, which is empty if the end was called before all was ready."""
        await self._wait_ready(supervisor, view)
        if self.stop.is_set():
            return []
        async with Client(self.at.broker_address, name="demo") as client:
            observer = Observer(self.settings, supervisor, client, self.opening)
            ready("demo", self.at.broker_address)
            await self._watch(supervisor, observer, view)
            return await end_in_order(
                supervisor, observer, view, mongo_url=self.at.mongo_url, settle_within_s=self.settings.settle_within
            )

    async def _wait_ready(self, supervisor: Supervisor, view: View) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._show_start, view)
            tasks.start_soon(self._give_up_at_stop, tasks.cancel_scope)
            await supervisor.wait_ready(_READY_WITHIN_S)
            tasks.cancel_scope.cancel()

    async def _show_start(self, view: View) -> None:
        while True:
            view.show(None)
            await anyio.sleep(_LOOK_EVERY_S / 4)

    async def _give_up_at_stop(self, scope: anyio.CancelScope) -> None:
        await self.stop.wait()
        scope.cancel()

    async def _watch(self, supervisor: Supervisor, observer: Observer, view: View) -> None:
        """Look and show until it is to end: told so, the time is over, or the source has ended."""
        view.say("running")
        end_at = time.monotonic() + (self.settings.seconds or float("inf"))
        has_statistics = False
        while not self.stop.is_set() and supervisor["sse_ingest"].state is not State.ENDED:
            await observer.look()
            view.show(observer)
            if observer.tally.latest and not has_statistics:
                has_statistics = True
                logger().info("first statistics", after_s=round(time.monotonic() - self._began_at, 1))
            remaining_s = end_at - time.monotonic()
            if remaining_s <= 0:
                return
            with anyio.move_on_after(min(_LOOK_EVERY_S, remaining_s)):
                await self.stop.wait()


async def serve(settings: DemoSettings, stop: anyio.Event) -> int:
    """Run the demo until `stop`, --seconds or the end of the source; returns 0 if the closing check is right, else 1."""
    if settings.spark:
        _check_java()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        replica_set: ReplicaSet | None = None
        if os.environ.get("MONGO_URL"):
            mongo_url = stack.enter_context(mongodb(settings.data_dir / "mongodb"))
        else:
            replica_set = replica_set_of(settings)
            mongo_url = replica_set.url
        demo = Demo(settings, resolve(settings, mongo_url), stop)
        programs = programs_of(settings, demo.at, replica_set, on_broker=demo.note_opening)
        console = Console(stderr=True)
        async with supervised(programs, settings.data_dir / "logs") as supervisor:
            with showing(supervisor, console) as view:
                rows = await demo.run(supervisor, view)
            print_check(rows, settings)
    return 0 if is_right(rows) else 1


def print_check(rows: list[Row], settings: DemoSettings) -> None:
    """Print the closing check on stdout: a table, or one JSON object."""
    if settings.report == "json":
        found = {
            "is_right": is_right(rows),
            "rows": [{**msgspec.to_builtins(row), "is_right": row.is_right} for row in rows],
        }
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        sys.stdout.flush()
        return
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    console.print(check_table(rows))


def _check_java() -> None:
    try:
        check_java()
    except StartError as error:
        raise StartError(f"{error}; or run the demo without Spark: --no-spark") from error
