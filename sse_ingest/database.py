"""Connect to MongoDB, create missing collections and indexes, and interpret MongoDB's errors."""

from typing import Any

from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    InvalidName,
    InvalidURI,
    OperationFailure,
    PyMongoError,
)

from sse_ingest.orphans import end_orphans
from tweetwire.protocol.errors import StartError
from tweetwire.runtime import mongodb
from tweetwire.runtime.mongodb import no_address, unanswered

__all__ = ["Client", "Database", "Document", "connect", "is_conflict", "is_race", "is_too_much", "reason_of"]

Document = dict[str, Any]
Client = AsyncMongoClient[Document]
Database = AsyncDatabase[Document]

APPNAME_MAX = 100
SOCKET_TIMEOUT_MS = 30_000

_DUPLICATE_KEY = 11000
_TOO_LARGE_FOR_CACHE = 388

_COLLECTIONS = ("tweets", "users", "users_engagements", "rejected_tweets", "positions")
_INDEXES = {"tweets": ("ingested_at",), "rejected_tweets": ("at",)}


async def connect(url: str, name: str, timeout_s: float) -> Client:
    """Connect, and create missing collections and indexes of the database `name`.

    Args:
        url: MongoDB's address.
        name: the database's name.
        timeout_s: how long to wait for a server, now and in every later request, in seconds.

    Raises:
        StartError: the address or the name is not valid, or no replica set answers in time.
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
    """Return the error in one line, without the driver's settings."""
    if isinstance(error, BulkWriteError) and (error.details or {}).get("writeErrors"):
        return str(error.details["writeErrors"][0].get("errmsg"))[:500]
    return mongodb.reason_of(error)


def is_conflict(error: Exception) -> bool:
    """Whether two writers conflicted. A lost connection has the same label, but is an outage."""
    return (
        isinstance(error, PyMongoError)
        and error.has_error_label("TransientTransactionError")
        and not isinstance(error, ConnectionFailure)
    )


def is_too_much(error: Exception) -> bool:
    """Whether a transaction exceeds MongoDB's cache. Before version 6.2, MongoDB reports this as a conflict."""
    return isinstance(error, OperationFailure) and error.code == _TOO_LARGE_FOR_CACHE


def is_race(error: Exception) -> bool:
    """Whether another writer inserted a document between our read and our insert."""
    if not isinstance(error, BulkWriteError):
        return False
    faults = (error.details or {}).get("writeErrors", [])
    return bool(faults) and all(
        fault.get("code") == _DUPLICATE_KEY and fault.get("keyPattern") == {"_id": 1} for fault in faults
    )


async def _prepare(client: Client, name: str, appname: str) -> None:
    hello = await client.admin.command("hello")
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        raise StartError(
            f"the MongoDB at {_hosts(client)} is not a replica set, so it has no transactions and no change streams; "
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
        # Another ingester that starts at the same moment may have created it first.
        if collection not in await database.list_collection_names():
            raise


def _hosts(client: Client) -> str:
    return ",".join(f"{host}:{port}" for host, port in sorted(client._topology_settings.seeds))
