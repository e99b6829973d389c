"""The schedule of full garbage collections, which stop the event loop while they run.

By default, Python starts a full collection when the number of old objects has grown by a quarter. It then looks at every
object, which takes 300 ms or more with 10,000 connections, or with thousands of topics. So the broker decides. It collects
when enough objects were added, and excludes the objects that are left from later collections. So a collection looks only at
what was added since the one before.

Python frees an old object without a collection if it is in no reference cycle. So serving a client and ending its connection
must leave no reference cycles; `tests/broker/test_garbage.py` checks it. Once no client has been connected for a while, the
broker looks at all objects.

Collections of young objects take only a few milliseconds as long as there are few. Python starts one after a number of new
objects, less the number of objects that were freed. If new connections keep taking the place of old ones, that
difference stays small, and the next collection finds all objects of thousands of connections. So the broker looks at the real
number of young objects, too.
"""

import gc
from collections.abc import Callable
from time import monotonic
from typing import Final

import anyio

__all__ = ["collect_when_due"]

LOOK_EVERY_S: Final = 0.1
YOUNG_MAX: Final = 7000
"""More young objects than this are collected at once, which takes about 1 µs for each."""
IDLE_S: Final = 10.0
ADDED_MAX: Final = 50_000
"""After this many new objects a collection is due. It takes about 30 ms."""
NEVER: Final = 1_000_000_000


async def collect_when_due(connected: Callable[[], int]) -> None:
    """Collect garbage when it is due, forever, instead of Python. `connected` returns the number of connections."""
    _collect_and_exclude()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, NEVER)
    is_changed, busy_s = False, monotonic()
    while True:
        await anyio.sleep(LOOK_EVERY_S)
        if len(gc.get_objects(generation=0)) > YOUNG_MAX:
            # The middle generation is collected, too, so that these objects are not looked at again soon.
            gc.collect(1)
        if connected():
            busy_s = monotonic()
        # A collection of the middle generation runs after `young * middle` added objects. The third count is the number of such
        # collections.
        if gc.get_count()[2] * young * middle >= ADDED_MAX:
            is_changed = True
            _collect_and_exclude()
        if is_changed and monotonic() - busy_s >= IDLE_S:
            is_changed = False
            gc.unfreeze()
            _collect_and_exclude()


def _collect_and_exclude() -> None:
    """Collect garbage, and exclude the objects that are left from later collections."""
    gc.collect()
    gc.freeze()
