"""Other protocols than the broker's own, served on its topics."""

from broker.gateways.event_source import EventSource, EventSourceOptions

__all__ = ["EventSource", "EventSourceOptions"]
