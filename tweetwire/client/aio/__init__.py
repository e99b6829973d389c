"""The async client: pipelined publishing, batches of deliveries, and automatic reconnection."""

from tweetwire.client.aio.client import Client
from tweetwire.client.aio.publisher import Publisher
from tweetwire.client.aio.subscription import Subscription

__all__ = ["Client", "Publisher", "Subscription"]
