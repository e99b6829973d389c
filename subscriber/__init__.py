"""What services that consume events are written with, and the stress subscriber that judges whether a broker is honest."""

from subscriber.app import Delivery, Subscriber

__all__ = ["Delivery", "Subscriber"]
