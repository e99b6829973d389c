"""One browser for the tests of a file. Each test opens its own pages."""

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.dashboard.programs import NO_BROWSER, find_chromium, open_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's Chromium. Without one, the tests are skipped, or fail where a browser is required."""
    path = find_chromium()
    if path is None:
        if os.environ.get("TWEETWIRE_TEST_BROWSER") == "needed" or os.environ.get("CI"):
            pytest.fail(NO_BROWSER)
        pytest.skip(NO_BROWSER)
    with open_browser(path) as browser:
        yield browser
