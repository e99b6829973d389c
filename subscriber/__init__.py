"""The library for services that consume events, and the stress subscriber that checks a broker's promises."""

from subscriber.handlers.app import Delivery, Subscriber

__all__ = ["Delivery", "Subscriber"]
