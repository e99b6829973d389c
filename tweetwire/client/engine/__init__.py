"""The engine of both clients, without I/O, clocks and logs: it turns commands and received bytes into bytes and results."""

from tweetwire.client.engine.engine import ClientEngine
from tweetwire.client.engine.publishes import PublishWindow
from tweetwire.client.engine.subscription import SubscriptionState

__all__ = ["ClientEngine", "PublishWindow", "SubscriptionState"]
