"""Gateways, which serve the broker's topics in other protocols."""

from broker.gateways.event_source import EventSource, EventSourceOptions

__all__ = ["EventSource", "EventSourceOptions"]
