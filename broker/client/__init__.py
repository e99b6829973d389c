"""The async client: pipelined publishing, batches of deliveries, and connections that come back by themselves."""

from broker.client.client import Client
from broker.client.publisher import Publisher
from broker.client.subscription import Subscription

__all__ = ["Client", "Publisher", "Subscription"]
