"""Compute the number of workers that a pool should have."""

from math import ceil

__all__ = ["workers_wanted"]

BUSY = 0.7
"""The share of its time that a worker should be busy. The rest absorbs bursts without a queue."""

DRAIN_S = 2.0
"""The time in seconds within which a queue should become empty."""


def workers_wanted(
    *, arrival_per_s: float, queued: int, seconds_per_event: float, workers: int, least: int, most: int
) -> int:
    """Return the number of workers for the next second, from `least` to `most`.

    The load is the work that arrives in a second plus a share of the queued work. A pool grows in one step but shrinks by one
    worker a second, so that a pause between two bursts does not end workers that the second burst needs.

    Args:
        arrival_per_s: events that arrived in the last second.
        queued: events that wait for a worker.
        seconds_per_event: measured time of one event in a worker, in seconds.
        workers: the current number of workers.
        least: the lower bound of the result.
        most: the upper bound of the result.
    """
    load = (arrival_per_s + queued / DRAIN_S) * seconds_per_event
    wanted = ceil(load / BUSY)
    if wanted < workers:
        wanted = max(wanted, workers - 1)
    return min(max(wanted, least), most)
