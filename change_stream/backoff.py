"""How long to pause before the next try of what just failed, and what is known of the outage."""

import random

import anyio

from broker.program import logger

__all__ = ["Backoff", "Outage"]


class Backoff:
    """Pauses that double from `first_s` to `max_s`.

    Each is drawn from its upper half, so that many clients of a server that comes back do not come at once.
    """

    def __init__(self, first_s: float = 0.1, max_s: float = 2.0) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._next_s = first_s

    def pause_s(self) -> float:
        """Return the seconds to wait this time."""
        pause = self._next_s * random.uniform(0.5, 1.0)  # noqa: S311 — jitter, not a secret
        self._next_s = min(self._next_s * 2, self._max_s)
        return pause

    def reset(self) -> None:
        """Begin anew with the first pause: it went well."""
        self._next_s = self._first_s


class Outage:
    """Whether MongoDB is away for one collection, and how often it was."""

    def __init__(self, collection: str, backoff: Backoff | None = None) -> None:
        self.count = 0
        self._reasons: set[str] = set()
        self._collection = collection
        self._backoff = backoff or Backoff()

    @property
    def is_on(self) -> bool:
        """Whether MongoDB did not answer the last time."""
        return bool(self._reasons)

    async def pause(self, reason: Exception) -> None:
        """Take note of a failure, and wait before the next try; each reason in an outage is a warning once."""
        text = str(reason)
        log = logger().debug if text in self._reasons else logger().warning
        log("MongoDB is away, trying again", collection=self._collection, reason=text)
        self._reasons.add(text)
        self.count += 1
        await anyio.sleep(self._backoff.pause_s())

    def end(self) -> None:
        """Take note that MongoDB answers."""
        if self._reasons:
            logger().info("MongoDB answers again", collection=self._collection)
        self._reasons.clear()
        self._backoff.reset()
