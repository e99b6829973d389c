"""Other brokers with the task of B3. Each is a separate server on a free port, with its usual Python client at both ends.

Each figure is shown with the meaning of the peer's confirmation, because not all peers wait for the disk.
"""

from bench.peers.mosquitto import MOSQUITTO
from bench.peers.nats import NATS
from bench.peers.peer import PeerBroker
from bench.peers.rabbitmq import RABBITMQ
from bench.peers.redis_streams import REDIS

__all__ = ["PEERS", "PeerBroker"]

PEERS = (REDIS, NATS, RABBITMQ, MOSQUITTO)
