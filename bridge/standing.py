"""The figures of one route, and its warnings while a server is missing."""

import time

import anyio

from bridge.central import EngineUnreachable, NotThereYet
from tweetwire.backoff import Backoff
from tweetwire.runtime.program import logger

__all__ = ["Standing"]


class Standing:
    """The figures of a route since the program started.

    Attributes:
        carried: The events that were written, or published.
        left_out: The events that were not sent or taken because of their path.
        rejected: The events that the other side will never accept.
        gaps: The events that were removed before they were carried.
        resent: The events that were sent again because the engine had lost them.
        lost: How often the central stream was deleted or made again.
        repeated: The events that the broker had already.
        failures: The sessions that ended by an error.
        position: The last offset that was sent, or the place that was read, if it is a number.
        is_open: Set once the first session is open.
    """

    def __init__(self, route: str, topic: str) -> None:
        self.route = route
        self.topic = topic
        self.carried = 0
        self.left_out = 0
        self.rejected = 0
        self.gaps = 0
        self.resent = 0
        self.lost = 0
        self.repeated = 0
        self.failures = 0
        self.position = -1
        self.is_open = anyio.Event()
        self._up: set[str] = set()
        self._down: set[str] = set()
        self._in_hand: dict[str, int] = {}
        self._reasons: set[str] = set()
        self._backoff = Backoff()

    @property
    def is_connected(self) -> bool:
        """Whether the route is open: at least one of its tasks is, and none has failed since."""
        return bool(self._up) and not self._down

    def lag_s(self) -> float:
        """Return the age of the oldest event in hand, in seconds; 0 if there is none."""
        return max(0.0, time.time() - min(self._in_hand.values()) / 1000) if self._in_hand else 0.0

    def hold(self, oldest_ms: int, task: str = "") -> None:
        """Record the date of the oldest event that a task has in hand. Only a route of several tasks names them."""
        self._in_hand[task] = oldest_ms

    def release(self, task: str = "") -> None:
        """Record that a task has no event in hand."""
        self._in_hand.pop(task, None)

    async def pause(self, error: Exception, task: str = "") -> None:
        """Record a failure and wait before the next try. Each reason is logged as a warning once per outage."""
        text = str(error) or type(error).__name__
        log = logger().debug if text in self._reasons else logger().warning
        log(_event_of(error), route=self.route, reason=text)
        self._reasons.add(text)
        self._up.discard(task)
        self._down.add(task)
        self.failures += 1
        await anyio.sleep(self._backoff.next_pause_s())

    def opened(self, task: str = "") -> None:
        """Record that both sides answer. An outage is over only once an event was carried."""
        self._up.add(task)
        self._down.discard(task)
        self.is_open.set()

    def progressed(self) -> None:
        """Record that an event was carried."""
        if self._reasons:
            logger().info("route works again", route=self.route)
            self._reasons.clear()
        self._backoff.reset()


def _event_of(error: Exception) -> str:
    if isinstance(error, NotThereYet):
        return "nothing to carry yet, waiting"
    if isinstance(error, EngineUnreachable):
        return "engine unreachable or refusing, retrying"
    return "broker unreachable or refusing, retrying"
