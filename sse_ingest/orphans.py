"""Transactions that a killed ingester has left open.

mongod keeps such a transaction, and the locks on its documents and collections, until it is 60 s old
(``transactionLifetimeLimitSeconds``), since a session outlives its connection. An ingester that starts again would wait
for it with every tweet it has in common, and with its indexes. Ending one that belongs to a living ingester would do no
harm either: it is run again.
"""

from typing import Any

import anyio
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure

from broker.program import logger

__all__ = ["end_orphans"]

INACTIVE_S = 1.0
"""A living ingester's transaction waits a few milliseconds between two commands."""

log = logger()


async def end_orphans(client: AsyncMongoClient[dict[str, Any]], appname: str) -> None:
    """End what clients named `appname` have left open; where it may not be asked for, time ends it."""
    try:
        while orphans := await _open_transactions(client, appname):
            await anyio.sleep(INACTIVE_S)
            left = [orphan for orphan in orphans if orphan in await _open_transactions(client, appname)]
            if left:
                log.info("ending transactions of an ingester that was killed", transactions=len(left))
                await client.admin.command("killSessions", [{"id": session} for session, _ in left])
    except OperationFailure as error:
        log.debug("cannot look for open transactions", reason=str(error))


async def _open_transactions(client: AsyncMongoClient[dict[str, Any]], appname: str) -> list[tuple[Any, int]]:
    """Return session and transaction number of each, if its client is done with the last command."""
    pipeline: list[dict[str, Any]] = [
        {"$currentOp": {"allUsers": False, "idleSessions": True}},
        {"$match": {"type": "idleSession", "appName": appname, "transaction": {"$exists": True}}},
    ]
    operations = await (await client.admin.aggregate(pipeline)).to_list()
    return [(one["lsid"]["id"], one["transaction"]["parameters"]["txnNumber"]) for one in operations]
