"""MongoDB: one batch is one transaction, so that every tweet counts once.

A batch's transaction reads which of its tweets are there already, inserts the others, and adds exactly these to
`users` and `users_engagements`; rejects are inserted with it. Hence, at any time and after any crash:

- `users.tweets_seen` and `users_engagements.tweets` equal the number of the user's documents in `tweets`.
- A tweet that arrives again, in the batch, later, after a restart or from another ingester, changes nothing, and so makes
  no change event. That holds for newer counts too: a tweet's document is what it was when it was first seen.

A kill between any two steps leaves either the whole batch or nothing of it. If the outcome of a commit is not known
(the connection broke, the primary stepped down) the whole transaction is run again: it reads again what is there, and
finds everything there if the commit had gone through. Two ingesters that meet on a user conflict by MongoDB's snapshot
isolation, and one of them runs again. The writes' retries would be wrong without the read in the same transaction.

Inserts of what is missing cost a third of upserts of everything, and in a transaction a bulk write costs half of what it
costs outside (one write to the log for the batch): with mongod 6.0 on two cores 130 against 480 µs a tweet.
"""

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

import anyio
import pymongo
import stamina
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import BulkWriteError, ConnectionFailure, DocumentTooLarge, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from broker.errors import StartError
from broker.mongodb import unanswered
from broker.program import logger
from sse_ingest.batch import Batch, Entry, Reject, reject_document
from sse_ingest.database import Client, Database, Document, connect, reason_of
from sse_ingest.statistics import Timings
from sse_ingest.users import by_user, engagement_document, user_document, user_update

__all__ = ["Store"]

ABORT_S = 2.0
CONFLICTS_MAX = 6
"""After so many a batch is halved: either others have one of its users, or it is too large for MongoDB's cache."""
HASHTAGS_TIMEOUT_S = 4 * 3600.0

_DUPLICATE_KEY = 11000
_TOO_LARGE_FOR_CACHE = 388
_REFUSED = (BulkWriteError, DocumentTooLarge, BSONError, OverflowError, UnicodeError)

log = logger()


class Store:
    """The ingester's database."""

    def __init__(self, client: Client, database: Database) -> None:
        self.tweets_seconds = Timings()
        self.users_seconds = Timings()
        self.outage: str | None = None
        self.retries = 0
        self._client = client
        self._database = database
        self._lost_at = 0.0

    @classmethod
    async def open(cls, url: str, database: str, timeout_s: float) -> "Store":
        """Connect, and make collections and indexes where they are missing. Raises StartError."""
        client = await connect(url, database, timeout_s)
        return cls(client, client[database])

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def hashtags(self, before: datetime) -> dict[str, int]:
        """Return how often each hashtag is in the tweets that were ingested before a time. Raises PyMongoError."""
        stages: list[Document] = [
            {"$match": {"ingested_at": {"$lt": before}, "hashtags": {"$ne": []}}},
            {"$project": {"hashtags": 1}},
            {"$unwind": "$hashtags"},
            {"$group": {"_id": "$hashtags", "tweets": {"$sum": 1}}},
        ]
        # Most tweets match, so in their own order; with many millions that takes longer than any other answer may.
        with pymongo.timeout(HASHTAGS_TIMEOUT_S):
            groups = await self._database.tweets.aggregate(stages, hint={"$natural": 1}, allowDiskUse=True)
            return {group["_id"]: group["tweets"] async for group in groups}

    async def positions(self) -> dict[str, str]:
        """Return the id behind which each source is to be read. Raises StartError."""
        try:
            return {one["_id"]: one["last_event_id"] async for one in self._database.positions.find()}
        except PyMongoError as error:
            raise StartError(unanswered(error)) from error

    async def keep_position(self, source: str, last_id: str) -> None:
        """Note how far a source is settled. Raises PyMongoError."""
        update = {"$set": {"last_event_id": last_id, "at": datetime.now(UTC)}}
        await self._database.positions.update_one({"_id": source}, update, upsert=True)

    async def settle(self, batch: Batch) -> list[Entry]:
        """Write a batch, for as long as it takes, and return the tweets that were new.

        A document that MongoDB refuses does not hurt the others: it becomes a reject. A batch that meets others again
        and again, or is more than MongoDB takes at once, is written in parts.
        """
        # Also those of attempts whose commit went through unseen: to the next attempt they are there already.
        return await self._settle(batch, set())

    async def _settle(self, batch: Batch, inserted: set[str]) -> list[Entry]:
        try:
            return await self._settle_together(batch, inserted)
        except _REFUSED as error:
            if len(batch) <= 1:
                log.warning("MongoDB refuses a document", reason=reason_of(error))
                await self._settle_refused(batch, reason_of(error))
                return []
        except OperationFailure as error:
            if len(batch) <= 1 or not (_is_conflict(error) or _is_too_much(error)):
                raise
            log.debug("a batch is written in parts", tweets=len(batch), reason=reason_of(error))
        first, second = batch.halves()
        return [*await self._settle(first, inserted), *await self._settle(second, inserted)]

    async def _settle_together(self, batch: Batch, inserted: set[str]) -> list[Entry]:
        now = datetime.now(UTC)
        retry = stamina.AsyncRetryingCaller(
            attempts=None, timeout=None, wait_initial=0.05, wait_max=5.0, wait_jitter=0.2
        )
        # Not the batch itself in the function: it would stay until Python next looks for cycles.
        is_one = len(batch) <= 1
        conflicts = 0

        def is_worth_a_retry(error: Exception) -> bool:
            nonlocal conflicts
            conflicts += _is_conflict(error)
            can_be_halved = not is_one and (conflicts >= CONFLICTS_MAX or _is_too_much(error))
            return self._is_worth_a_retry(error) and not can_be_halved

        await retry.on(is_worth_a_retry)(self._transaction, batch, now, inserted)
        self._is_back()
        batch.settle(inserted)
        return [entry for entry in batch.tweets.values() if entry.tweet.id in inserted]

    async def _settle_refused(self, batch: Batch, reason: str) -> None:
        """Turn the one document of a batch into a reject that MongoDB can take."""
        substitute = Batch(1)
        for entry in batch.tweets.values():
            source = RawBSONDocument(entry.tweet.document)["source"]
            raw = f"{entry.tweet.id} {entry.tweet.text}"
            document = reject_document(source, raw, f"MongoDB refuses it: {reason}")
            substitute.add(Reject(document, entry.account, entry.number))
        for reject in batch.rejects:
            document = reject_document(str(reject.document["source"]), "", f"MongoDB refuses its reject: {reason}")
            substitute.add(Reject(document, reject.account, reject.number))
        substitute.repeated = batch.repeated
        try:
            await self._settle_together(substitute, set())
        except _REFUSED:
            log.exception("a rejected event cannot be kept")
            substitute.settle(set())

    async def _transaction(self, batch: Batch, now: datetime, inserted: set[str]) -> None:
        async with self._client.start_session() as session:
            await session.start_transaction(ReadConcern("snapshot"), WriteConcern("majority"))
            try:
                await self._write_batch(batch, now, inserted, session)
                await session.commit_transaction()
            except BaseException:
                # Also when cancelled: mongod would hold the documents' locks until the transaction is 60 s old.
                with anyio.move_on_after(ABORT_S, shield=True), contextlib.suppress(PyMongoError):
                    await session.abort_transaction()
                raise

    async def _write_batch(self, batch: Batch, now: datetime, inserted: set[str], session: AsyncClientSession) -> None:
        began = perf_counter()
        new = await self._insert_tweets(batch, session)
        inserted.update(entry.tweet.id for entry in new)
        tweets_written = perf_counter()
        if new:
            await self._count_users(new, now, session)
            self.tweets_seconds.add(tweets_written - began)
            self.users_seconds.add(perf_counter() - tweets_written)
        await self._insert_rejects(batch, session)

    async def _insert_tweets(self, batch: Batch, session: AsyncClientSession) -> list[Entry]:
        if not batch.tweets:
            return []
        there = await _ids(self._database, "tweets", list(batch.tweets), session)
        new = [entry for tweet_id, entry in batch.tweets.items() if tweet_id not in there]
        if new:
            documents = [RawBSONDocument(entry.tweet.document) for entry in new]
            await self._database.tweets.insert_many(documents, ordered=False, session=session)
        return new

    async def _insert_rejects(self, batch: Batch, session: AsyncClientSession) -> None:
        """Insert the rejects that an earlier attempt, whose outcome was unknown, has not."""
        if batch.rejects:
            documents = {reject.document["_id"]: reject.document for reject in batch.rejects}
            there = await _ids(self._database, "rejected_tweets", list(documents), session)
            missing = [document for reject_id, document in documents.items() if reject_id not in there]
            await _write(self._database, "rejected_tweets", missing, {}, session)

    async def _count_users(self, new: list[Entry], now: datetime, session: AsyncClientSession) -> None:
        users = by_user(entry.tweet for entry in new)
        known = await _ids(self._database, "users", list(users), session)
        fresh = [user_document(user_id, seen, now) for user_id, seen in users.items() if user_id not in known]
        seen_before = {user_id: user_update(seen, now) for user_id, seen in users.items() if user_id in known}
        await _write(self._database, "users", fresh, seen_before, session)

        cursor = self._database.users_engagements.find(
            {"_id": {"$in": list(users)}}, session=session, batch_size=100_000
        )
        before = {document["_id"]: document for document in await cursor.to_list()}
        after = {user_id: engagement_document(user_id, seen, before.get(user_id)) for user_id, seen in users.items()}
        first = [document for user_id, document in after.items() if user_id not in before]
        replaced = {user_id: after[user_id] for user_id in before}
        await _write(self._database, "users_engagements", first, replaced, session)

    def _is_worth_a_retry(self, error: Exception) -> bool:
        if not isinstance(error, PyMongoError) or (isinstance(error, _REFUSED) and not _is_race(error)):
            return False
        self.retries += 1
        if self.outage is None and not _is_conflict(error):
            self._lost_at = perf_counter()
            self.outage = reason_of(error)
            log.warning("MongoDB does not take the batch, trying on", reason=self.outage)
        return True

    def _is_back(self) -> None:
        if self.outage is not None:
            self.outage = None
            log.info("MongoDB takes batches again", away_s=round(perf_counter() - self._lost_at, 1))


async def _ids(database: Database, collection: str, ids: list[Any], session: AsyncClientSession) -> set[Any]:
    cursor = database[collection].find({"_id": {"$in": ids}}, {"_id": 1}, session=session, batch_size=100_000)
    return {document["_id"] for document in await cursor.to_list()}


async def _write(
    database: Database,
    collection: str,
    inserts: Sequence[RawBSONDocument | Document],
    updates: dict[Any, Document],
    session: AsyncClientSession,
) -> None:
    """Insert documents and update, or replace, others by their ids."""
    if inserts:
        await database[collection].insert_many(inserts, ordered=False, session=session)
    if updates:
        # The command itself: pymongo's bulk API costs more time for each update than building and sending it.
        statements = [{"q": {"_id": document_id}, "u": update} for document_id, update in updates.items()]
        command = {"update": collection, "updates": statements, "ordered": False}
        reply = await database.command(command, session=session)
        if reply.get("writeErrors"):
            raise BulkWriteError(reply)


def _is_conflict(error: Exception) -> bool:
    """Whether two writers met, which is no outage; a lost connection is one, though it has the same label."""
    return (
        isinstance(error, PyMongoError)
        and error.has_error_label("TransientTransactionError")
        and not isinstance(error, ConnectionFailure)
    )


def _is_too_much(error: Exception) -> bool:
    """Whether a transaction is more than MongoDB's cache takes, as it is told from version 6.2 on; before, as a conflict."""
    return isinstance(error, OperationFailure) and error.code == _TOO_LARGE_FOR_CACHE


def _is_race(error: Exception) -> bool:
    """Whether another writer inserted a document between our read and our insert."""
    if not isinstance(error, BulkWriteError):
        return False
    faults = (error.details or {}).get("writeErrors", [])
    return bool(faults) and all(
        fault.get("code") == _DUPLICATE_KEY and fault.get("keyPattern") == {"_id": 1} for fault in faults
    )
