"""The paths of the checkout and of recordings of real streams."""

from pathlib import Path

__all__ = ["ROOT", "SHARED"]

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
