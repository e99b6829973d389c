"""A real MongoDB replica set on this machine, made from an empty data directory.

Change streams need a replica set, so even one member is started as one. The member's port is stored beside its data, since the
set's configuration contains `host:port`. Clients connect to that address rather than to the address in their URL.
"""

from demo.mongod.binary import find_mongod
from demo.mongod.member import Member
from demo.mongod.replica_set import ReplicaSet
from demo.mongod.server import mongodb

__all__ = ["Member", "ReplicaSet", "find_mongod", "mongodb"]
