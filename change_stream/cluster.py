"""The MongoDB deployment: its identity, its version's features, and its time."""

import time
from typing import Any

import anyio
from bson import Timestamp
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure, PyMongoError

from change_stream.errors import WatchRefused, translate
from tweetwire.backoff import Backoff
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.mongodb import is_refusal, no_address, unanswered

__all__ = ["Cluster"]

_SELECTION_MS = 2000
# The first versions with pre-images, with split events, and with `disambiguatedPaths` in update descriptions.
_PRE_IMAGES = (6, 0)
_SPLITS = (6, 0, 9)
_DISAMBIGUATES = (6, 1)


class Cluster:
    """A replica set or a sharded cluster; `id` distinguishes it from every other one."""

    def __init__(self, mongo: AsyncMongoClient[dict[str, Any]]) -> None:
        self.mongo = mongo
        self.id = ""
        # Other ids of this cluster in records that were written without the right to read the id
        self.names: frozenset[str] = frozenset()
        self._version: tuple[int, ...] = ()

    def is_named(self, name: str) -> bool:
        """Whether a record with this id of a cluster is about this cluster."""
        return name == self.id or name in self.names

    @classmethod
    def at(cls, url: str) -> "Cluster":
        """Make the cluster at a MongoDB URL without connecting to it. Raises StartError if the URL is not valid."""
        try:
            # Each stream keeps a connection busy while it waits. With pymongo's limit of 100, other streams would wait forever.
            return cls(
                AsyncMongoClient(url, appname="tweetwire", serverSelectionTimeoutMS=_SELECTION_MS, maxPoolSize=0)
            )
        except (PyMongoError, ValueError) as error:
            raise StartError(no_address(error)) from error

    @property
    def has_pre_images(self) -> bool:
        """Whether collections can keep the state before a change."""
        return self._version >= _PRE_IMAGES

    @property
    def can_split(self) -> bool:
        """Whether MongoDB sends events above 16 MiB in pieces."""
        return self._version >= _SPLITS

    @property
    def disambiguates_paths(self) -> bool:
        """Whether MongoDB reports which digits in an update's path are names and which are array positions."""
        return self._version >= _DISAMBIGUATES

    async def connect(self, timeout_s: float) -> None:
        """Wait until MongoDB answers, and read its version and identity.

        Args:
            timeout_s: how long to try, in seconds.

        Raises:
            StartError: MongoDB did not answer in time, or refuses the login.
            WatchRefused: the deployment has no change streams.
        """
        deadline = time.monotonic() + timeout_s
        backoff = Backoff()
        while not self.id:
            try:
                self._version = tuple((await self.mongo.admin.command("buildInfo"))["versionArray"][:3])
                self.id = await self._identity()
            except PyMongoError as error:
                failure = translate(error)
                if isinstance(failure, WatchRefused):
                    raise failure from error
                if is_refusal(error) or time.monotonic() > deadline:
                    raise StartError(unanswered(error)) from error
                await anyio.sleep(backoff.next_pause_s())

    async def now(self) -> Timestamp:
        """Return the cluster time of MongoDB's last write. Raises the errors of `CollectionWatch.open`."""
        try:
            reply = await self.mongo.admin.command("ping")
        except PyMongoError as error:
            raise translate(error) from error
        # A router has no operation time; its reply has the cluster time instead.
        time: Timestamp = reply.get("operationTime") or reply["$clusterTime"]["clusterTime"]
        return time

    async def oldest(self) -> Timestamp | None:
        """Return the cluster time of the oldest oplog entry, None if the user may not read it.

        Raises the errors of `CollectionWatch.open`.
        """
        try:
            first = await self.mongo.local["oplog.rs"].find_one(sort=[("$natural", 1)])
        except OperationFailure:
            return None
        except PyMongoError as error:
            raise translate(error) from error
        return None if first is None else first["ts"]

    async def _identity(self) -> str:
        hello = await self.mongo.admin.command("hello")
        if hello.get("msg") == "isdbgrid":
            version = await self.mongo.config["version"].find_one()
            return str(version["clusterId"]) if version else "sharded"
        if "setName" not in hello:
            raise WatchRefused("change streams need a replica set; start mongod with --replSet, or run: make demo")
        try:
            config = await self.mongo.admin.command("replSetGetConfig")
        except OperationFailure:
            # Reading the id needs the privilege clusterMonitor; without it, only the set's name identifies the set.
            return f"set-{hello['setName']}"
        self.names = frozenset({f"set-{hello['setName']}"})
        return str(config["config"]["settings"]["replicaSetId"])
