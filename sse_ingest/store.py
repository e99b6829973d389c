"""Write batches to MongoDB, each in one transaction, so that every tweet counts once.

A batch's transaction reads which of its tweets are already stored, inserts the others, and adds exactly these to
`users` and `users_engagements`. It also inserts the batch's rejects. So, at any time and after any crash:

- `users.tweets_seen` and `users_engagements.tweets` equal the number of the user's documents in `tweets`.
- A tweet that arrives again (in the batch, later, after a restart or from another ingester) changes nothing, and so makes no
  change event. That holds for newer counts too: a tweet's document keeps the values of its first arrival.

A kill between any two steps leaves either the whole batch or nothing of it. If the outcome of a commit is unknown (the
connection broke, the primary stepped down), the same commit is sent again, because MongoDB remembers its result. A new
transaction would wait for the open one, which MongoDB keeps for 60 s. If MongoDB has forgotten or aborted the transaction,
the whole transaction is run again: it reads again which tweets are stored, and so inserts nothing twice. If two ingesters
write the same user, MongoDB's snapshot isolation reports a conflict, and one of them runs again. Without the read in the
same transaction, these retries would count tweets twice.

Inserting only the missing tweets takes a third of the time of an upsert of all tweets. A bulk write inside a
transaction takes half as long as outside, because the batch is one entry in the oplog. Measured with mongod 6.0 on two
cores: 130 instead of 480 µs a tweet.
"""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

import anyio
import pymongo
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import BulkWriteError, DocumentTooLarge, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from sse_ingest.batch import RejectedEntry, TweetEntry, WriteBatch, rejected_document
from sse_ingest.database import Client, Database, Document, connect, is_conflict, is_race, is_too_much, reason_of
from sse_ingest.statistics import Timings
from sse_ingest.users import by_user, engagement_document, user_document, user_update
from tweetwire.backoff import Backoff
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.mongodb import unanswered
from tweetwire.runtime.program import logger

__all__ = ["Store"]

ABORT_S = 2.0
CONFLICTS_MAX = 6
"""After this number of conflicts a batch is halved: other writers write one of its users, or it exceeds MongoDB's cache."""
HASHTAGS_TIMEOUT_S = 4 * 3600.0

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
        """Connect, and create missing collections and indexes. Raises StartError."""
        client = await connect(url, database, timeout_s)
        return cls(client, client[database])

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def hashtags(self, before: datetime) -> dict[str, int]:
        """Return the count of each hashtag in tweets ingested before `before`. Raises PyMongoError."""
        stages: list[Document] = [
            {"$match": {"ingested_at": {"$lt": before}, "hashtags": {"$ne": []}}},
            {"$project": {"hashtags": 1}},
            {"$unwind": "$hashtags"},
            {"$group": {"_id": "$hashtags", "tweets": {"$sum": 1}}},
        ]
        # Most tweets match, so natural order is fastest. With many millions, this takes longer than other requests may.
        with pymongo.timeout(HASHTAGS_TIMEOUT_S):
            groups = await self._database.tweets.aggregate(stages, hint={"$natural": 1}, allowDiskUse=True)
            return {group["_id"]: group["tweets"] async for group in groups}

    async def positions(self) -> dict[str, str]:
        """Return the id after which to read each source. Raises StartError."""
        try:
            return {one["_id"]: one["last_event_id"] async for one in self._database.positions.find()}
        except PyMongoError as error:
            raise StartError(unanswered(error)) from error

    async def save_position(self, source: str, last_id: str) -> None:
        """Store the position of a source. Raises PyMongoError."""
        update = {"$set": {"last_event_id": last_id, "at": datetime.now(UTC)}}
        await self._database.positions.update_one({"_id": source}, update, upsert=True)

    async def store_batch(self, batch: WriteBatch) -> list[TweetEntry]:
        """Write a batch, retrying until it succeeds, and return the tweets that were new.

        A document that MongoDB refuses does not affect the others: it becomes a rejected event. A batch that conflicts
        repeatedly, or exceeds MongoDB's limits, is written in parts.
        """
        # The set also has the tweets of an attempt whose commit succeeded although its reply was lost: the next attempt
        # finds them stored.
        return await self._settle(batch, set())

    async def _settle(self, batch: WriteBatch, inserted: set[str]) -> list[TweetEntry]:
        try:
            return await self._settle_together(batch, inserted)
        except _REFUSED as error:
            if len(batch) <= 1:
                log.warning("MongoDB refused a document", reason=reason_of(error))
                await self._settle_refused(batch, reason_of(error))
                return []
        except OperationFailure as error:
            if len(batch) <= 1 or not (is_conflict(error) or is_too_much(error)):
                raise
            log.debug("batch is written in parts", tweets=len(batch), reason=reason_of(error))
        first, second = batch.halves()
        return [*await self._settle(first, inserted), *await self._settle(second, inserted)]

    async def _settle_together(self, batch: WriteBatch, inserted: set[str]) -> list[TweetEntry]:
        now = datetime.now(UTC)
        # Do not close over `batch`: the reference cycle would keep it alive until the next garbage collection.
        is_one = len(batch) <= 1
        conflicts = 0

        def is_worth_a_retry(error: Exception) -> bool:
            nonlocal conflicts
            conflicts += is_conflict(error)
            can_be_halved = not is_one and (conflicts >= CONFLICTS_MAX or is_too_much(error))
            return self._is_worth_a_retry(error) and not can_be_halved

        await _retried(lambda: self._transaction(batch, now, inserted), is_worth_a_retry)
        self._is_back()
        batch.settle_entries(inserted)
        return [entry for entry in batch.tweets.values() if entry.tweet.id in inserted]

    async def _settle_refused(self, batch: WriteBatch, reason: str) -> None:
        """Replace the single entry of a batch, which MongoDB refuses, by a rejected event that MongoDB can store."""
        substitute = WriteBatch(1)
        for entry in batch.tweets.values():
            source = RawBSONDocument(entry.tweet.document)["source"]
            raw = f"{entry.tweet.id} {entry.tweet.text}"
            document = rejected_document(source, raw, f"MongoDB refuses it: {reason}")
            substitute.add_entry(RejectedEntry(document, entry.account, entry.number))
        for rejected in batch.rejected:
            document = rejected_document(
                str(rejected.document["source"]),
                "",
                f"MongoDB refuses the stored form of this rejected event: {reason}",
            )
            substitute.add_entry(RejectedEntry(document, rejected.account, rejected.number))
        substitute.repeated = batch.repeated
        try:
            await self._settle_together(substitute, set())
        except _REFUSED:
            log.exception("rejected event could not be stored")
            substitute.settle_entries(set())

    async def _transaction(self, batch: WriteBatch, now: datetime, inserted: set[str]) -> None:
        async with self._client.start_session() as session:
            await session.start_transaction(ReadConcern("snapshot"), WriteConcern("majority"))
            try:
                await self._write_batch(batch, now, inserted, session)
                await self._commit(session)
            except BaseException:
                # Abort also after a cancellation: otherwise mongod holds the documents' locks until the transaction is 60 s
                # old.
                with anyio.move_on_after(ABORT_S, shield=True), contextlib.suppress(PyMongoError):
                    await self._abort(session)
                raise

    async def _commit(self, session: AsyncClientSession) -> None:
        """Commit, and repeat the same commit while its outcome is unknown."""

        def is_outcome_unknown(error: Exception) -> bool:
            is_unknown = isinstance(error, PyMongoError) and error.has_error_label("UnknownTransactionCommitResult")
            return is_unknown and self._is_worth_a_retry(error)

        await _retried(session.commit_transaction, is_outcome_unknown)

    async def _abort(self, session: AsyncClientSession) -> None:
        """Abort the transaction, even after a commit with an unknown outcome, which pymongo does not abort."""
        if session.in_transaction:
            await session.abort_transaction()
        else:
            await self._client.admin.command("killSessions", [session.session_id])

    async def _write_batch(
        self, batch: WriteBatch, now: datetime, inserted: set[str], session: AsyncClientSession
    ) -> None:
        began = perf_counter()
        new = await self._insert_tweets(batch, session)
        inserted.update(entry.tweet.id for entry in new)
        tweets_written = perf_counter()
        if new:
            await self._count_users(new, now, session)
            self.tweets_seconds.add_seconds(tweets_written - began)
            self.users_seconds.add_seconds(perf_counter() - tweets_written)
        await self._insert_rejected(batch, session)

    async def _insert_tweets(self, batch: WriteBatch, session: AsyncClientSession) -> list[TweetEntry]:
        if not batch.tweets:
            return []
        there = await _ids(self._database, "tweets", list(batch.tweets), session)
        new = [entry for tweet_id, entry in batch.tweets.items() if tweet_id not in there]
        if new:
            documents = [RawBSONDocument(entry.tweet.document) for entry in new]
            await self._database.tweets.insert_many(documents, ordered=False, session=session)
        return new

    async def _insert_rejected(self, batch: WriteBatch, session: AsyncClientSession) -> None:
        """Insert the rejected events, except those that an earlier attempt with an unknown outcome has inserted."""
        if batch.rejected:
            documents = {rejected.document["_id"]: rejected.document for rejected in batch.rejected}
            there = await _ids(self._database, "rejected_tweets", list(documents), session)
            missing = [document for rejected_id, document in documents.items() if rejected_id not in there]
            await _write(self._database, "rejected_tweets", missing, {}, session)

    async def _count_users(self, new: list[TweetEntry], now: datetime, session: AsyncClientSession) -> None:
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
        if not isinstance(error, PyMongoError) or (isinstance(error, _REFUSED) and not is_race(error)):
            return False
        self.retries += 1
        if self.outage is None and not is_conflict(error):
            self._lost_at = perf_counter()
            self.outage = reason_of(error)
            log.warning("MongoDB did not accept a batch, retrying", reason=self.outage)
        return True

    def _is_back(self) -> None:
        if self.outage is not None:
            self.outage = None
            log.info("MongoDB accepts batches again", away_s=round(perf_counter() - self._lost_at, 1))


async def _retried(attempt: Callable[[], Awaitable[None]], is_worth_a_retry: Callable[[Exception], bool]) -> None:
    """Repeat an attempt until it succeeds. Raises the first error that is not worth a retry."""
    backoff = Backoff(first_s=0.2, max_s=5.0)
    while True:
        try:
            return await attempt()
        except Exception as error:
            if not is_worth_a_retry(error):
                raise
        await anyio.sleep(backoff.next_pause_s())


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
    """Insert documents, and update or replace others by their ids."""
    if inserts:
        await database[collection].insert_many(inserts, ordered=False, session=session)
    if updates:
        # Send the plain command: pymongo's bulk API takes more time per update.
        statements = [{"q": {"_id": document_id}, "u": update} for document_id, update in updates.items()]
        command = {"update": collection, "updates": statements, "ordered": False}
        reply = await database.command(command, session=session)
        if reply.get("writeErrors"):
            raise BulkWriteError(reply)
