"""The MongoDB deployment: which one it is, what it can do, and what time it has."""

import time
from typing import Any

import anyio
from bson import Timestamp
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure, PyMongoError

from broker.errors import StartError
from broker.mongodb import is_refusal, no_address, unanswered
from change_stream.backoff import Backoff
from change_stream.errors import WatchRefused, translate

__all__ = ["Cluster"]

_SELECTION_MS = 2000
# Pre-images, and events in pieces, came with these versions.
_PRE_IMAGES = (6, 0)
_SPLITS = (6, 0, 9)


class Cluster:
    """A replica set, or a sharded cluster; `id` tells it from every other one."""

    def __init__(self, mongo: AsyncMongoClient[dict[str, Any]]) -> None:
        self.mongo = mongo
        self.id = ""
        self._version: tuple[int, ...] = ()

    @classmethod
    def at(cls, url: str) -> "Cluster":
        """The cluster at a MongoDB URL, not yet asked. Raises StartError where the URL is none."""
        try:
            return cls(AsyncMongoClient(url, appname="tweetwire", serverSelectionTimeoutMS=_SELECTION_MS))
        except (PyMongoError, ValueError) as error:
            raise StartError(no_address(error)) from error

    @property
    def has_pre_images(self) -> bool:
        """Whether collections can keep the state before a change."""
        return self._version >= _PRE_IMAGES

    @property
    def can_split(self) -> bool:
        """Whether it sends events above 16 MiB in pieces."""
        return self._version >= _SPLITS

    async def connect(self, timeout_s: float) -> None:
        """Wait until it answers. Raises StartError after `timeout_s`, at once where it has no change streams or refuses."""
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
                await anyio.sleep(backoff.pause_s())

    async def now(self) -> Timestamp:
        """Return the time of its last write. Raises as `Watch.open` does."""
        try:
            reply = await self.mongo.admin.command("ping")
        except PyMongoError as error:
            raise translate(error) from error
        # A router has no time of its own, and tells the cluster's.
        time: Timestamp = reply.get("operationTime") or reply["$clusterTime"]["clusterTime"]
        return time

    async def oldest(self) -> Timestamp | None:
        """Return the time that its history reaches back to; None where that may not be read. Raises as `Watch.open`."""
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
            # Without the privilege clusterMonitor the set's name is all there is to know it by.
            return f"set-{hello['setName']}"
        return str(config["config"]["settings"]["replicaSetId"])
