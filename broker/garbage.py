"""The schedule of full garbage collections, which stop the event loop while they run.

By default, Python starts a full collection when the number of old objects has grown by a quarter. Clients that connect cause
this. With 10,000 connections a collection takes 300 ms or more. So the broker decides: it collects when few clients are
connected, or when garbage may be a large part of the added objects. Serving a client and ending its connection must leave no
reference cycles; `tests/broker/test_garbage.py` checks it.

Collections of young objects take only a few milliseconds as long as there are few. Python starts one after a number of new
objects, less the number of objects that were freed. If new connections keep taking the place of old ones, that
difference stays small, and the next collection finds all objects of thousands of connections. So the broker looks at the real
number of young objects, too.
"""

import gc
from collections.abc import Callable
from time import monotonic
from typing import Final, NamedTuple

import anyio

__all__ = ["Population", "collect_when_calm", "is_due"]

LOOK_EVERY_S: Final = 0.1
YOUNG_MAX: Final = 7000
"""More young objects than this are collected at once, which takes about 1 µs for each."""
FEW_CONNECTIONS: Final = 1000
CALM_S: Final = 10.0
ADDED_MIN: Final = 100_000
ADDED_MAX: Final = 400_000
"""A full collection is due after this many new objects that refer to other objects. They take about 80 MB."""
ADDED_EACH: Final = 70
"""The number of such objects that a connection needs."""
NEVER: Final = 1_000_000_000


class Population(NamedTuple):
    """The number of connections, and approximately how many objects were added and not freed since the last full collection."""

    connected: int
    added: int


def is_due(population: Population, since_s: float) -> bool:
    """Return whether a full collection is due, `since_s` seconds after the last one."""
    is_calm = population.connected < FEW_CONNECTIONS and since_s >= CALM_S
    return population.added >= (ADDED_MIN if is_calm else ADDED_MAX + ADDED_EACH * population.connected)


async def collect_when_calm(connected: Callable[[], int]) -> None:
    """Run full collections when they are due, forever, instead of Python. `connected` returns the number of connections."""
    # Objects that the start has created are never freed, so exclude them from later collections.
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)
    last_s = monotonic()
    while True:
        await anyio.sleep(LOOK_EVERY_S)
        if len(gc.get_objects(generation=0)) > YOUNG_MAX:
            # The middle generation is collected, too, so that these objects are not looked at again soon.
            gc.collect(1)
        # A collection of the middle generation runs after `young * middle` added objects. The third count is the number of such
        # collections.
        added = gc.get_count()[2] * young * middle
        if is_due(Population(connected(), added), monotonic() - last_s):
            gc.collect()
            last_s = monotonic()
