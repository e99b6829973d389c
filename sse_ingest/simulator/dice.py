"""Chance that is the same for the same words."""

import random

__all__ = ["dice_of"]


def dice_of(*parts: object) -> random.Random:
    """Return the random numbers that belong to `parts`."""
    return random.Random("/".join(map(str, parts)))  # noqa: S311 — tweets are invented with it, nothing is kept secret
