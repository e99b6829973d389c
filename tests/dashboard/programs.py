"""The dashboard as a real process, and the browser that looks at it."""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from playwright.sync_api import Browser, sync_playwright

__all__ = ["NO_BROWSER", "DashboardProcess", "find_chromium", "open_browser"]

READY = re.compile(r"ready on (http://[^\s\"]+)")
START_S = 90.0
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NO_BROWSER = f"no browser: none of {', '.join(BROWSERS)} is on PATH; on Debian: apt-get install chromium"
# Without these it looks for updates and for its maker's hosts, and waits for a graphics card.
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
]


class DashboardProcess:
    """``python -m broker.dashboard`` on a free port."""

    def __init__(self, broker: str, log_path: Path, *flags: str) -> None:
        self.log_path = log_path
        self.url = ""
        self._broker = broker
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "broker.dashboard", "--port", "0", "--broker", self._broker, "--log-json"]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen([*command, *self._flags], stderr=log, start_new_session=True)
        deadline = time.monotonic() + START_S
        while (found := READY.search(self.log_path.read_text())) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the dashboard did not start:\n{self.log_path.read_text()}")
            time.sleep(0.05)
        self.url = found[1]
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def host(self) -> str:
        """host:port"""
        return self.url.removeprefix("http://")

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> int:
        """SIGTERM; returns the exit status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(60)


def find_chromium() -> str | None:
    """Return where the system's Chromium is."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@contextmanager
def open_browser(path: str) -> Iterator[Browser]:
    """Start the Chromium at `path` without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()
