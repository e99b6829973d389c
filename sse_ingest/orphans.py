"""End the open transactions of a killed ingester.

A session outlives its connection, so mongod keeps such a transaction, and its locks on documents and collections, until
it is 60 s old (``transactionLifetimeLimitSeconds``). A restarted ingester would wait for it at each tweet that both
write, and when it creates its indexes. Ending the transaction of a running ingester is harmless, too, since that
ingester retries it.
"""

from typing import Any

import anyio
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure

from tweetwire.runtime.program import logger

__all__ = ["end_orphans"]

INACTIVE_S = 1.0
"""A transaction without a command for this long is abandoned: a running ingester pauses only for milliseconds."""

log = logger()


async def end_orphans(client: AsyncMongoClient[dict[str, Any]], appname: str) -> None:
    """End the open transactions of clients named `appname`; without the privilege, they time out in MongoDB."""
    try:
        while orphans := await _open_transactions(client, appname):
            await anyio.sleep(INACTIVE_S)
            left = [orphan for orphan in orphans if orphan in await _open_transactions(client, appname)]
            if left:
                log.info("ending transactions of a killed ingester", transactions=len(left))
                await client.admin.command("killSessions", [{"id": session} for session, _ in left])
    except OperationFailure as error:
        log.debug("open transactions could not be listed", reason=str(error))


async def _open_transactions(client: AsyncMongoClient[dict[str, Any]], appname: str) -> list[tuple[Any, int]]:
    """Return session id and transaction number of each open transaction whose client sends no command at the moment."""
    pipeline: list[dict[str, Any]] = [
        {"$currentOp": {"allUsers": False, "idleSessions": True}},
        {"$match": {"type": "idleSession", "appName": appname, "transaction": {"$exists": True}}},
    ]
    operations = await (await client.admin.aggregate(pipeline)).to_list()
    return [(one["lsid"]["id"], one["transaction"]["parameters"]["txnNumber"]) for one in operations]
