"""Parts of the system that tests need and that a user's machine may lack."""

import os
from typing import TypeVar

import pytest

__all__ = ["needed_engine"]

T = TypeVar("T")


def needed_engine(found: T | None, sentence: str) -> T:
    """Return what was found. Without it, the test is skipped with a sentence, or fails where the engines are required."""
    if found is None:
        if os.environ.get("TWEETWIRE_TEST_ENGINES") == "needed" or os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    return found
