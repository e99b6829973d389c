"""The content of one write to MongoDB: distinct tweets, and rejected events."""

from datetime import UTC, datetime
from typing import Any

from bson import ObjectId
from msgspec import Struct, field

from sse_ingest.account import SourceAccount
from sse_ingest.handover import ScoredTweet
from sse_ingest.progress import UNTRACKED

__all__ = ["RAW_CHARACTERS_MAX", "BatchEntry", "RejectedEntry", "TweetEntry", "WriteBatch", "rejected_document"]

RAW_CHARACTERS_MAX = 65_536
"""The most characters of a rejected event's text that are kept."""


BATCH_BYTES_MAX = 8 << 20
"""The approximate size of a transaction. A transaction above a tenth of MongoDB's cache always fails, as a conflict."""


class TweetEntry(Struct, gc=False):
    """A tweet to be stored, with the account of its source and its number in the source's `Progress`."""

    tweet: ScoredTweet
    account: SourceAccount
    number: int = UNTRACKED


class RejectedEntry(Struct):
    """A document for `rejected_tweets`, with the account of its source."""

    document: dict[str, Any]
    account: SourceAccount
    number: int = UNTRACKED


BatchEntry = TweetEntry | RejectedEntry


class WriteBatch(Struct):
    """Tweets by id, and rejected events: together up to `size`.

    `repeated` holds the account and number of each further arrival of a tweet that is already in the batch.
    """

    size: int
    bytes: int = 0
    tweets: dict[str, TweetEntry] = field(default_factory=dict)
    rejected: list[RejectedEntry] = field(default_factory=list)
    repeated: list[tuple[SourceAccount, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tweets) + len(self.rejected)

    @property
    def is_full(self) -> bool:
        """Whether the batch has reached its limit of entries or bytes."""
        return len(self) >= self.size or self.bytes >= BATCH_BYTES_MAX

    def add_entry(self, entry: BatchEntry) -> None:
        """Add an entry; another arrival of a tweet in the batch is settled together with the first one."""
        if isinstance(entry, RejectedEntry):
            self.rejected.append(entry)
            self.bytes += len(entry.document["raw"])
        elif entry.tweet.id in self.tweets:
            self.repeated.append((entry.account, entry.number))
        else:
            self.tweets[entry.tweet.id] = entry
            self.bytes += len(entry.tweet.document) + len(entry.tweet.profile)

    def settle_entries(self, inserted: set[str]) -> None:
        """Record the outcome of all entries in their accounts; `inserted` are the ids of the new tweets."""
        for entry in self.tweets.values():
            if entry.tweet.id in inserted:
                entry.account.stored += 1
            else:
                entry.account.already_there += 1
            entry.account.progress.settle_event(entry.number)
        for account, number in self.repeated:
            account.already_there += 1
            account.progress.settle_event(number)
        for rejected in self.rejected:
            rejected.account.rejected += 1
            rejected.account.progress.settle_event(rejected.number)

    def halves(self) -> tuple["WriteBatch", "WriteBatch"]:
        """Split the batch in two, to separate a document that MongoDB refuses from the others."""
        entries: list[BatchEntry] = [*self.tweets.values(), *self.rejected]
        first, second = WriteBatch(self.size), WriteBatch(self.size)
        for place, entry in enumerate(entries):
            (first if place < len(entries) // 2 else second).add_entry(entry)
        second.repeated.extend(self.repeated)
        return first, second


def rejected_document(source: str, raw: str, error: str) -> dict[str, Any]:
    """Return the document that keeps an unusable event: its source, the error, the time, and its text, cut if too long."""
    document: dict[str, Any] = {
        "_id": ObjectId(),
        "source": source,
        "error": error,
        "raw": raw[:RAW_CHARACTERS_MAX],
        "at": datetime.now(UTC),
    }
    if len(raw) > RAW_CHARACTERS_MAX:
        document["raw_characters"] = len(raw)
    return document
