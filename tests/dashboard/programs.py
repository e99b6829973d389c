"""The dashboard as a real process, and the browser that looks at it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.support.processes import Process

__all__ = ["NO_BROWSER", "DashboardProcess", "find_chromium", "open_browser"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NO_BROWSER = f"no browser: none of {', '.join(BROWSERS)} is on PATH; on Debian: apt-get install chromium"
# Without these flags, Chromium looks for updates, calls its vendor's servers, and waits for a graphics card.
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
]


class DashboardProcess(Process):
    """``python -m dashboard`` on a free port; `address` is its URL."""

    def __init__(self, broker: str, log_path: Path, *flags: str) -> None:
        super().__init__(log_path, "dashboard", "--port", 0, "--broker", broker, "--log-json", *flags)

    @property
    def url(self) -> str:
        """The address of its pages."""
        return self.address

    @property
    def host(self) -> str:
        """The host and the port, as ``host:port``."""
        return self.url.removeprefix("http://")


def find_chromium() -> str | None:
    """Return the path of the system's Chromium, None without one."""
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
