"""How many workers a pool should have: one pure function."""

from math import ceil

__all__ = ["workers_wanted"]

BUSY = 0.7
"""The share of its time that a worker should be busy: the rest takes up bursts without a queue."""

DRAIN_S = 2.0
"""A queue that has built up should be gone within this time."""


def workers_wanted(
    *, arrival_per_s: float, queued: int, seconds_per_event: float, workers: int, least: int, most: int
) -> int:
    """Return the number of workers for the next second, `least` … `most`.

    The work of a second is what arrives in it and a share of what is queued; `seconds_per_event` is the measured time
    that one event takes in a worker. A pool grows at once and shrinks by one at a time, so that a pause between two
    bursts does not send home the workers of the second.
    """
    load = (arrival_per_s + queued / DRAIN_S) * seconds_per_event
    wanted = ceil(load / BUSY)
    if wanted < workers:
        wanted = max(wanted, workers - 1)
    return min(max(wanted, least), most)
