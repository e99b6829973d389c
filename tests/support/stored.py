"""The stored events of a topic."""

from tweetwire import StoredEvent, SyncClient

__all__ = ["events_of"]


def events_of(broker: str, topic: str) -> list[StoredEvent]:
    """Return all events of a topic, none if it does not exist."""
    events: list[StoredEvent] = []
    with SyncClient(broker, name="test") as client:
        if topic not in {info.topic for info in client.topics()}:
            return []
        offset = 0
        while (page := client.read(topic, offset, limit=10_000)).events:
            events += page.events
            offset = page.next
    return events
