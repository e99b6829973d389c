"""The way to MongoDB: connecting, and what has to be there before anything is written."""

from typing import Any

from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError, ConfigurationError, InvalidName, InvalidURI, PyMongoError

from broker import mongodb
from broker.errors import StartError
from broker.mongodb import no_address, unanswered
from sse_ingest.orphans import end_orphans

__all__ = ["Client", "Database", "Document", "connect", "reason_of"]

Document = dict[str, Any]
Client = AsyncMongoClient[Document]
Database = AsyncDatabase[Document]

APPNAME_MAX = 100
SOCKET_TIMEOUT_MS = 30_000

_COLLECTIONS = ("tweets", "users", "users_engagements", "rejected_tweets", "positions")
_INDEXES = {"tweets": ("ingested_at",), "rejected_tweets": ("at",)}


async def connect(url: str, name: str, timeout_s: float) -> Client:
    """Connect and make the collections and indexes of database `name` where they are missing.

    Raises StartError where no replica set answers within `timeout_s`, which holds for every later wait for it as well.
    """
    appname = f"tweetwire sse_ingest {name}"[:APPNAME_MAX]
    try:
        client: Client = AsyncMongoClient(
            url,
            appname=appname,
            w="majority",
            tz_aware=True,
            serverSelectionTimeoutMS=int(timeout_s * 1000),
            connectTimeoutMS=int(timeout_s * 1000),
            socketTimeoutMS=SOCKET_TIMEOUT_MS,
        )
    except (ConfigurationError, InvalidURI, ValueError) as error:
        raise StartError(no_address(error)) from error
    try:
        await _prepare(client, name, appname)
    except BaseException as error:
        await client.aclose()
        if isinstance(error, InvalidName):
            raise StartError(f"--database: {error}") from error
        if isinstance(error, PyMongoError):
            raise StartError(unanswered(error)) from error
        raise
    return client


def reason_of(error: Exception) -> str:
    """Return what is wrong in one line, without the driver's settings."""
    if isinstance(error, BulkWriteError) and (error.details or {}).get("writeErrors"):
        return str(error.details["writeErrors"][0].get("errmsg"))[:500]
    return mongodb.reason_of(error)


async def _prepare(client: Client, name: str, appname: str) -> None:
    hello = await client.admin.command("hello")
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        raise StartError(
            f"the MongoDB at {_hosts(client)} is no replica set, so it has no transactions and no change streams; "
            "start it with --replSet and initiate it"
        )
    await end_orphans(client, appname)
    database = client[name]
    there = set(await database.list_collection_names())
    for collection in _COLLECTIONS:
        if collection not in there:
            await _create(database, collection)
    for collection, members in _INDEXES.items():
        for member in members:
            await database[collection].create_index(member)


async def _create(database: Database, collection: str) -> None:
    try:
        await database.create_collection(collection)
    except PyMongoError:
        # Another ingester that starts at the same moment may have been first.
        if collection not in await database.list_collection_names():
            raise


def _hosts(client: Client) -> str:
    return ",".join(f"{host}:{port}" for host, port in sorted(client._topology_settings.seeds))
