"""The event source gateway, which reads events from a source and sends each client its own events."""

from broker.gateways.event_source.gateway import EventSource, EventSourceOptions

__all__ = ["EventSource", "EventSourceOptions"]
