"""A registry in memory: the double of those of the engines."""

import time
from collections.abc import Callable

import anyio.lowlevel

from bridge.central import BROKERS_MAX, KEPT_S, EngineUnreachable, Sighting

__all__ = ["MemoryHeartbeats", "MemoryRegistry"]


class MemoryHeartbeats:
    """The heartbeats that any number of registries share.

    Attributes:
        by_broker: The time and the content of the newest heartbeat of each broker, the oldest first.
        is_down: Whether every call raises EngineUnreachable.
        clock: Returns the engine's time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.by_broker: dict[str, tuple[float, bytes]] = {}
        self.is_down = False
        self.clock = clock


class MemoryRegistry:
    """Keeps heartbeats in memory."""

    def __init__(self, heartbeats: MemoryHeartbeats, *, kept_s: float = KEPT_S, brokers_max: int = BROKERS_MAX) -> None:
        self._heartbeats = heartbeats
        self._kept_s = kept_s
        self._brokers_max = brokers_max

    async def open(self) -> None:
        """Raise EngineUnreachable while the engine is down."""
        await anyio.lowlevel.checkpoint()
        if self._heartbeats.is_down:
            raise EngineUnreachable("the engine in memory is down")

    async def announce(self, broker: str, heartbeat: bytes) -> None:
        """Replace the heartbeat of a broker."""
        await self.open()
        known = self._heartbeats.by_broker
        known.pop(broker, None)
        known[broker] = (self._heartbeats.clock(), heartbeat)
        while len(known) > self._brokers_max:
            del known[next(iter(known))]

    async def sightings(self) -> list[Sighting]:
        """Return the newest heartbeat of each broker."""
        await self.open()
        now_s = self._heartbeats.clock()
        found = [
            Sighting(broker, heartbeat, now_s - at_s)
            for broker, (at_s, heartbeat) in self._heartbeats.by_broker.items()
        ]
        return [one for one in found if one.age_s < self._kept_s]

    async def aclose(self) -> None:
        """Do nothing, since there is no connection."""
