"""How the demo ends, and why in this order.

1. The ingester and its simulator: nothing new comes in, and what came is written to MongoDB. From here on what MongoDB
   holds is what every other part must have.
2. Nobody, for as long as there is progress: the change stream publishes, the subscriber acks, Spark closes its windows,
   until nothing is missing any more.
3. The subscriber, which reports; Spark; the change stream: they need the broker, and nothing they do is wanted any more.
   Only what happens up to here can be judged, so the check is made now, while broker and MongoDB can still be asked.
4. The broker and MongoDB, which the supervisor ends as the last.
"""

import time

import anyio

from demo.check import Row, check
from demo.observer import Observer
from demo.supervisor import Supervisor
from demo.view import View

__all__ = ["end_in_order"]

_PAUSE_S = 0.5


async def end_in_order(
    supervisor: Supervisor, observer: Observer, view: View, *, mongo_url: str, patience_s: float
) -> list[Row]:
    """End everything but broker and MongoDB, while the observer goes on looking; returns the closing check."""
    view.say("ending: the ingester writes what it has")
    await supervisor.stop("sse_ingest", "simulator")
    await observer.look_into_mongodb(mongo_url)
    await _settle(observer, view, patience_s)
    view.say("ending: the subscriber, Spark and the change stream stop")
    await supervisor.stop("subscriber", "spark", "change_stream")
    await observer.look_again()
    await observer.look_into_mongodb(mongo_url)
    return check(observer.evidence())


async def _settle(observer: Observer, view: View, patience_s: float) -> None:
    """Wait while something is still to come, and some of it came within `patience_s`."""
    missing: list[int] = []
    deadline = 0.0
    while rows := [row for row in check(observer.evidence()) if row.to_come]:
        if missing != (missing := [row.to_come for row in rows]):
            deadline = time.monotonic() + patience_s
        elif time.monotonic() > deadline:
            return
        view.say(f"ending: waiting for {rows[0].what}: {rows[0].found:,} of {rows[0].wanted:,}")
        await anyio.sleep(_PAUSE_S)
