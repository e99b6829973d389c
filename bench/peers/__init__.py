"""Other brokers at B3's task, each a server of its own on a free port, with its usual Python client at both ends.

What a peer promises when it confirms stands beside its figure: not all of them wait for the disk.
"""

from bench.peers.mosquitto import MOSQUITTO
from bench.peers.nats import NATS
from bench.peers.peer import Peer
from bench.peers.rabbitmq import RABBITMQ
from bench.peers.redis_streams import REDIS

__all__ = ["PEERS", "Peer"]

PEERS = (REDIS, NATS, RABBITMQ, MOSQUITTO)
