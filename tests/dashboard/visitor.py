"""A user with a browser, who visits pages, waits for the expected content, and notes errors."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Error, Locator, Page, expect

__all__ = ["PATIENCE_MS", "Visitor", "visiting"]

PATIENCE_MS = 45_000
LOOK_MS = 5_000
# Chromium reports this error if the machine's network changed while a page was loading.
PASSING = "ERR_NETWORK_CHANGED"


class Visitor:
    """A browser's page that shows the dashboard at `url`. `faults` has errors of its scripts, and requests to other servers."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.faults: list[str] = []
        self.notes: list[str] = []
        self._is_torn = False
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", lambda request: self._note_request(request.url))
        page.on("requestfailed", lambda request: self._note_failure(request.url, request.failure or ""))
        page.on("console", lambda message: self.notes.append(f"{message.type}: {message.text}"))

    def go(self, path: str) -> "Visitor":
        """Open a page."""
        for _ in range(5):
            try:
                self.page.goto(self.url + path)
            except Error as error:
                if PASSING not in str(error):
                    raise
                continue
            break
        return self

    def sees(self, text: str | re.Pattern[str], within: str = "main") -> Locator:
        """Wait until a text is shown, and return its element."""
        found = self.page.locator(within).get_by_text(text).locator("visible=true").first
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while True:
            try:
                expect(found).to_be_visible(timeout=min(PATIENCE_MS, LOOK_MS))
                return found
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
            if self._is_torn:
                self._is_torn = False
                self.page.reload()

    def does_not_see(self, text: str) -> None:
        """Wait until a text is not shown."""
        expect(self.page.locator("main").get_by_text(text).locator("visible=true")).to_have_count(
            0, timeout=PATIENCE_MS
        )

    def presses(self, name: str) -> None:
        """Press the button with a name."""
        self.page.get_by_role("button", name=name, exact=True).click()

    def fills(self, label: str, text: str) -> None:
        """Write into the field with a label."""
        self.page.get_by_label(label, exact=True).fill(text)

    def _note_failure(self, url: str, reason: str) -> None:
        self.notes.append(f"failed: {url} {reason}")
        self._is_torn = self._is_torn or PASSING in reason

    def _note_request(self, url: str) -> None:
        if urlsplit(url).scheme in {"http", "https", "ws"} and urlsplit(url).netloc != urlsplit(self.url).netloc:
            self.faults.append(f"asks {url}")


@contextmanager
def visiting(browser: Browser, url: str, **context: Any) -> Iterator[Visitor]:
    """Visit a dashboard without the cookies of earlier visits. At the end, no fault may have been noted."""
    with browser.new_context(**context) as opened:
        visitor = Visitor(opened.new_page(), url)
        try:
            yield visitor
        except BaseException:
            print(*visitor.faults, *visitor.notes, sep="\n")
            raise
        assert visitor.faults == []
