"""One run of the demo, from the first port to the closing check."""

import math
import os
import sys
import time
from contextlib import ExitStack
from functools import partial
from typing import Any

import anyio
import msgspec
from rich.console import Console

from demo.addresses import publish_addresses
from demo.check import CheckRow, is_right
from demo.ending import end_in_order
from demo.mongod import ReplicaSet, mongodb
from demo.observer import Observer
from demo.programs import ProgramState
from demo.settings import DemoSettings
from demo.stack import Addresses, has_dashboard, programs_of, replica_set_of, resolve
from demo.supervisor import Supervisor, supervised
from demo.view import View, check_table, showing
from spark.apps.java import check_java
from tweetwire import Client, SyncClient
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.program import logger, ready

__all__ = ["serve"]

_READY_WITHIN_S = 180.0
_PAUSE_S = 0.1
_FOR_EVER_S = 1e9
_WIDTH = 120
"""The width of the closing table in columns if the output is not a terminal."""


class Demo:
    """One run: its programs, its figures, and the conditions for its end."""

    def __init__(self, settings: DemoSettings, at: Addresses, stop: anyio.Event) -> None:
        self.settings = settings
        self.at = at
        self.stop = stop
        self.opening: dict[str, Any] = {}
        self._began_at = time.monotonic()
        self._has_statistics = False

    def note_opening(self) -> None:
        """Read the broker's figures before the subscriber starts; called whenever the broker has started."""
        if not self.opening:
            with SyncClient(self.at.broker_address, name="demo", reconnect_s=0) as client:
                self.opening = client.stats()

    async def run(self, supervisor: Supervisor, view: View) -> list[CheckRow]:
        """Start, watch and end the stack. Return the closing check, empty if the run was stopped before the broker was up."""
        if not await self._is_under_way(supervisor, view):
            return []
        async with Client(self.at.broker_address, name="demo") as client:
            observer = Observer(self.settings, supervisor, client, self.opening)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(observer.run, partial(self._show, view))
                await self._wait_for_the_end(supervisor, view)
                rows = await end_in_order(
                    supervisor, observer, view, mongo_url=self.at.mongo_url, patience_s=self.settings.patience
                )
                tasks.cancel_scope.cancel()
            return rows

    async def _is_under_way(self, supervisor: Supervisor, view: View) -> bool:
        """Wait for the broker and MongoDB. Returns False if the run is stopped before."""
        while not self.stop.is_set():
            self._see_to_the_start(supervisor)
            if all(supervisor[name].became_ready.is_set() for name in ("mongodb", "broker") if name in supervisor):
                return True
            view.show(None)
            await self._pause(_PAUSE_S)
        return False

    async def _wait_for_the_end(self, supervisor: Supervisor, view: View) -> None:
        """Wait until the run is stopped, --seconds are over, or the source ends."""
        end_at = math.inf
        while not self.stop.is_set() and supervisor["sse_ingest"].state is not ProgramState.ENDED:
            if end_at == math.inf and self._is_ready(supervisor, view):
                end_at = time.monotonic() + (self.settings.seconds or _FOR_EVER_S)
            remaining_s = end_at - time.monotonic()
            if remaining_s <= 0:
                return
            await self._pause(min(_PAUSE_S, remaining_s))

    def _is_ready(self, supervisor: Supervisor, view: View) -> bool:
        late = self._see_to_the_start(supervisor)
        if late:
            view.say(f"starting: {', '.join(late)}")
            return False
        ready("demo", self.at.broker_address)
        view.say(f"running; dashboard: {supervisor['dashboard'].address}" if "dashboard" in supervisor else "running")
        return True

    def _see_to_the_start(self, supervisor: Supervisor) -> list[str]:
        """Return the programs that are not ready yet. Raises StartError if they take too long."""
        late = [name for name, child in supervisor.children.items() if not child.became_ready.is_set()]
        if late and time.monotonic() - self._began_at > _READY_WITHIN_S:
            logs = ", ".join(f"{name} ({supervisor[name].log_path})" for name in late)
            raise StartError(f"not ready after {_READY_WITHIN_S:g} s: {logs}")
        return late

    def _show(self, view: View, observer: Observer) -> None:
        view.show(observer)
        if not self._has_statistics and observer.has_new_statistics:
            self._has_statistics = True
            logger().info("first statistics", after_s=round(time.monotonic() - self._began_at, 1))

    async def _pause(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self.stop.wait()


async def serve(settings: DemoSettings, stop: anyio.Event) -> int:
    """Run the demo until `stop`, --seconds or the end of the source. Return 0 if the closing check is right, else 1."""
    if settings.spark:
        _check_java()
    if settings.dashboard and not has_dashboard(settings):
        logger().warning("no dashboard, since NiceGUI is not installed: pip install 'tweetwire[dashboard]'")
    # The folder is private, because it holds all tweets. The programs choose the modes of their folders inside it.
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        replica_set: ReplicaSet | None = None
        if os.environ.get("MONGO_URL"):
            mongo_url = stack.enter_context(mongodb(settings.data_dir / "mongodb"))
        else:
            replica_set = replica_set_of(settings)
            mongo_url = replica_set.url
        demo = Demo(settings, resolve(settings, mongo_url), stop)
        publish_addresses(settings, demo.at)
        programs = programs_of(settings, demo.at, replica_set, on_broker=demo.note_opening)
        console = Console(stderr=True)
        async with supervised(programs, settings.data_dir / "logs") as supervisor:
            with showing(supervisor, console) as view:
                rows = await demo.run(supervisor, view)
            print_check(rows, settings)
    if not is_right(rows):
        logger().error("closing check failed; see the programs' logs", logs=str(settings.data_dir / "logs"))
        return 1
    return 0


def print_check(rows: list[CheckRow], settings: DemoSettings) -> None:
    """Print the closing check on stdout, as a table or as one JSON object."""
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
