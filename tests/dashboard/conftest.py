"""One browser for all tests of a worker; the pages of each test are its own."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.dashboard.programs import open_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser
