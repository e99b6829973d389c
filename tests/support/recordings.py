"""Test inputs in the form of real streams: small invented samples, and recordings of real streams if they are available.

The samples are part of the repository, so every test that reads one runs everywhere. The recordings are beside the checkout, in
`../shared/data`. On a machine without them, the tests use the samples only. In CI, an absent recording fails its test.
"""

import os
from typing import Any

import pytest

from tests.support.paths import ROOT, SHARED

__all__ = ["RECORDINGS", "SAMPLES", "invented", "recorded"]

SAMPLES = ROOT / "tests" / "samples"
RECORDINGS = SHARED / "data"


def invented(name: str, *facts: Any) -> list[Any]:
    """Return the parameters of a test for one sample: its path, then `facts` about it."""
    return [pytest.param(SAMPLES / name, *facts, id=f"sample {name}")]


def recorded(name: str, *facts: Any) -> list[Any]:
    """Return the parameters for one recording, or none if it is missing. In CI, it must exist."""
    path = RECORDINGS / name
    return [pytest.param(path, *facts, id=f"recorded {name}")] if path.exists() or os.environ.get("CI") else []
