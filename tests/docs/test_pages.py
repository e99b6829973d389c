"""Every page with marked blocks is tested as a reader would use it, with real programs."""

import os
import shutil
from pathlib import Path

import pytest

from tests.docs.page import is_runnable, read_blocks
from tests.docs.walk import ROOT, match, walk

PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if is_runnable(page))
NEEDED = os.environ.get("TWEETWIRE_TEST_LANGUAGES") == "needed"
"""In CI, a page fails instead of being skipped if its programs are missing."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_a_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    missing = {
        block.words["needs"] for block in read_blocks(page) if not shutil.which(block.words.get("needs", "bash"))
    }
    if missing and not NEEDED:
        pytest.skip(f"not installed: {', '.join(sorted(missing))}")
    walk(page, tmp_path)


def test_an_ellipsis_stands_for_anything_within_a_line() -> None:
    assert match("+OK sub … pending=2", "+OK sub orders as=billing pending=2")
    assert not match("+OK sub … pending=2", "+OK sub orders as=billing pending=3")
