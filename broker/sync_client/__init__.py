"""The blocking client, for threads and worker processes: one socket, no reconnect, no task."""

from broker.sync_client.client import SyncClient
from broker.sync_client.subscription import SyncSubscription

__all__ = ["SyncClient", "SyncSubscription"]
