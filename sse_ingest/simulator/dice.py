"""Reproducible random numbers."""

import random

__all__ = ["dice_of"]


def dice_of(*parts: object) -> random.Random:
    """Return a random generator seeded by `parts`; equal parts give equal numbers."""
    return random.Random("/".join(map(str, parts)))  # noqa: S311 — it only invents tweets
