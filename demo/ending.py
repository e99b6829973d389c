"""The end of the demo, in four steps.

1. The ingester and its simulator stop. No new tweets arrive, and those that have arrived are written to MongoDB. From here
   on, MongoDB holds what every other part must have.
2. The other programs run until nothing is missing, or until there is no more progress: the change stream publishes, the
   subscriber acks, and Spark closes its windows.
3. The subscriber (which reports), Spark and the change stream stop. Then the check is made, while the broker and MongoDB still
   answer. It covers everything up to this point.
4. The supervisor ends the broker and MongoDB last, because the others need them.
"""

import time

import anyio

from demo.check import CheckRow, check
from demo.observer import Observer
from demo.supervisor import Supervisor
from demo.view import View

__all__ = ["end_in_order"]

_PAUSE_S = 0.5


async def end_in_order(
    supervisor: Supervisor, observer: Observer, view: View, *, mongo_url: str, patience_s: float
) -> list[CheckRow]:
    """End all programs except the broker and MongoDB, while the observer continues. Return the closing check."""
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
    """Wait until nothing is missing any longer, or until nothing has arrived for `patience_s` seconds."""
    missing: list[int] = []
    deadline = 0.0
    while rows := [row for row in check(observer.evidence()) if row.to_come]:
        if missing != (missing := [row.to_come for row in rows]):
            deadline = time.monotonic() + patience_s
        elif time.monotonic() > deadline:
            return
        view.say(f"ending: waiting for {rows[0].what}: {rows[0].found:,} of {rows[0].wanted:,}")
        await anyio.sleep(_PAUSE_S)
