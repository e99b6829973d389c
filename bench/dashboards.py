"""D2: measure the effect of three open dashboards on a busy broker.

A publisher sends 100,000 events a second at fixed times, and one subscriber acks them: first without a dashboard, then with one
that is open in three browser tabs. A user's browser runs on another machine, so here it only gets processor time that no other
process wants.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

from bench.broker_process import broker_process, processor_seconds
from bench.programs import NotMeasured, folder, program
from bench.settings import BenchSettings
from bench.wire import CHUNK, WireReader, connect, publish_chunks

__all__ = ["PAGES", "RATE", "Load", "Looks", "looked_at"]

RATE: Final = 100_000
PAGES: Final = ("/", "/topics/bench", "/subscriptions")
PREFETCH: Final = 20_000
WARM_S: Final = 3.0
MEASURED_S: Final = 10.0
_BROWSER_START_S: Final = 120.0
_BROWSER_NICENESS: Final = 19


class Load(NamedTuple):
    """Events delivered per second, and the broker's processor time per event (µs)."""

    delivered: float
    processor_us: float


class Looks(NamedTuple):
    """The load without a dashboard, and with three open ones."""

    alone: Load
    looked_at: Load

    @property
    def fall(self) -> float:
        """The fall of the delivery rate, in percent."""
        return 100 * (1 - self.looked_at.delivered / self.alone.delivered)


def looked_at(settings: BenchSettings) -> Looks:
    """D2: measure both loads, each with a separate broker. Raises NotMeasured if a browser or the dashboard is missing."""
    _check_installed()
    return Looks(_load(settings.size, ()), _load(settings.size, PAGES))


def _check_installed() -> None:
    try:
        import nicegui  # noqa: F401, PLC0415 — optional, and slow to import

        from tests.dashboard.programs import NO_BROWSER, find_chromium  # noqa: PLC0415 — needs playwright
    except ImportError as error:
        raise NotMeasured(f"{error.name} is not installed (extras dashboard and dev)") from error
    if find_chromium() is None:
        raise NotMeasured(NO_BROWSER)


def _load(size: int, pages: tuple[str, ...]) -> Load:
    with broker_process("--topic", "bench") as (port, pid), ExitStack() as stack:
        connection = stack.enter_context(closing(connect(port)))
        connection.sendall(b"sub bench as=reader prefetch=%d\n" % PREFETCH)
        reader = WireReader(connection)
        if pages:
            stack.enter_context(_dashboards(port, pages))
        stack.enter_context(_offering(port, size))
        began, delivered, processor_s = _mark(reader, pid, WARM_S)
        ended, delivered_then, processor_s_then = _mark(reader, pid, MEASURED_S)
    count = delivered_then - delivered
    return Load(count / (ended - began), 1e6 * (processor_s_then - processor_s) / count)


def _mark(reader: WireReader, pid: int, seconds: float) -> tuple[float, int, float]:
    """Let the reader read for `seconds`. Then return the time, the number of deliveries, and the broker's processor time."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        reader.take()
    return time.perf_counter(), reader.delivered, processor_seconds(pid)


@contextmanager
def _offering(port: int, size: int) -> Iterator[None]:
    process = get_context("fork").Process(target=_offer, args=(port, size), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _offer(port: int, size: int) -> None:
    """Send events when they are due, and read the confirmations that have arrived."""
    events = round(RATE * (WARM_S + MEASURED_S) * 1.5)
    with closing(connect(port)) as connection:
        began = time.perf_counter()
        for number, chunk in enumerate(publish_chunks(events, size)):
            time.sleep(max(0.0, began + number * CHUNK / RATE - time.perf_counter()))
            connection.sendall(chunk)
            connection.setblocking(False)
            with suppress(BlockingIOError):
                connection.recv(1 << 20)
            connection.setblocking(True)


@contextmanager
def _dashboards(port: int, pages: tuple[str, ...]) -> Iterator[None]:
    """Run a dashboard of the broker on `port`, with its `pages` open in a browser."""
    with folder() as home:
        words = ("dashboard", "--port", 0, "--broker", f"127.0.0.1:{port}", "--log-json")
        with program(home / "log", *words) as (dashboard_port, _):
            ours, theirs = get_context("spawn").Pipe()
            urls = [f"http://127.0.0.1:{dashboard_port}{page}" for page in pages]
            browser = get_context("spawn").Process(target=_look, args=(urls, theirs), daemon=True)
            browser.start()
            try:
                if not ours.poll(_BROWSER_START_S) or not ours.recv():
                    raise RuntimeError("the browser did not open the dashboard's pages")
                yield
            finally:
                ours.send("close")
                browser.join(30)
                browser.kill()


def _look(urls: list[str], control: Connection) -> None:
    """Keep pages open, each in view once, until the parent asks to close them."""
    from tests.dashboard.programs import find_chromium, open_browser  # noqa: PLC0415 — needs playwright

    os.nice(_BROWSER_NICENESS)
    with open_browser(find_chromium() or "") as browser:
        for url in urls:
            page = browser.new_page()
            page.goto(url, timeout=1000 * _BROWSER_START_S)
            page.locator("main.page").wait_for(timeout=1000 * _BROWSER_START_S)
        control.send("open")
        # Playwright handles the browser's events only while it waits for one.
        while not control.poll():
            page.wait_for_timeout(100)
