"""The blocking client, for threads and worker processes: one socket, automatic reconnection, and no background task."""

from tweetwire.client.blocking.client import SyncClient
from tweetwire.client.blocking.subscription import SyncSubscription

__all__ = ["SyncClient", "SyncSubscription"]
