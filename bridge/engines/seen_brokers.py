"""The newest heartbeat of each broker, for a registry that reads the engine's log of heartbeats."""

from bridge.central import Sighting

__all__ = ["SeenBrokers"]


class SeenBrokers:
    """Knows each broker for `kept_s` seconds after its newest heartbeat. Times are the engine's, in milliseconds."""

    def __init__(self, kept_s: float, brokers_max: int) -> None:
        self._kept_s = kept_s
        self._brokers_max = brokers_max
        # The time of the newest heartbeat of each broker, and its content
        self._known: dict[str, tuple[int, bytes]] = {}

    def clear(self) -> None:
        """Forget all brokers."""
        self._known.clear()

    def note(self, broker: str, at_ms: int, heartbeat: bytes) -> None:
        """Note a heartbeat. Call this in the order of the log."""
        self._known[broker] = (at_ms, heartbeat)

    def sightings(self, now_ms: float) -> list[Sighting]:
        """Return the newest heartbeats, at most `brokers_max`, the newest first. Forget those that are too old."""
        oldest_ms = now_ms - self._kept_s * 1000
        self._known = {broker: seen for broker, seen in self._known.items() if seen[0] > oldest_ms}
        newest = sorted(self._known.items(), key=lambda item: -item[1][0])[: self._brokers_max]
        return [Sighting(broker, heartbeat, max(0, now_ms - at_ms) / 1000) for broker, (at_ms, heartbeat) in newest]
