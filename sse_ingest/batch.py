"""What one write to MongoDB holds: tweets, each once, and what was rejected."""

from datetime import UTC, datetime
from typing import Any

from bson import ObjectId
from msgspec import Struct, field

from sse_ingest.account import Account
from sse_ingest.handover import Scored
from sse_ingest.progress import UNTRACKED

__all__ = ["RAW_CHARACTERS_MAX", "Batch", "Entry", "Reject", "reject_document"]

RAW_CHARACTERS_MAX = 65_536
"""How much of a rejected event's text is kept."""


BATCH_BYTES_MAX = 8 << 20
"""What one transaction holds, about: where it is a tenth of its cache MongoDB takes it for a conflict, and never in."""


class Entry(Struct, gc=False):
    """A tweet on its way, and the account of the source that it came from."""

    tweet: Scored
    account: Account
    number: int = UNTRACKED


class Reject(Struct):
    """A document for `rejected_tweets` on its way, and its account."""

    document: dict[str, Any]
    account: Account
    number: int = UNTRACKED


class Batch(Struct):
    """Tweets by id and rejects, up to `size` of both together.

    `repeated` are accounts and numbers of tweets that it holds already, once each time that they came again.
    """

    size: int
    bytes: int = 0
    tweets: dict[str, Entry] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    repeated: list[tuple[Account, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tweets) + len(self.rejects)

    @property
    def is_full(self) -> bool:
        """Whether it is to be written."""
        return len(self) >= self.size or self.bytes >= BATCH_BYTES_MAX

    def add(self, item: Entry | Reject) -> None:
        """Take in one; a tweet that is in the batch already is settled with its first."""
        if isinstance(item, Reject):
            self.rejects.append(item)
            self.bytes += len(item.document["raw"])
        elif item.tweet.id in self.tweets:
            self.repeated.append((item.account, item.number))
        else:
            self.tweets[item.tweet.id] = item
            self.bytes += len(item.tweet.document) + len(item.tweet.profile)

    def settle(self, inserted: set[str]) -> None:
        """Note in the accounts what has become of everything; `inserted` are the ids of the tweets that were new."""
        for entry in self.tweets.values():
            if entry.tweet.id in inserted:
                entry.account.stored += 1
            else:
                entry.account.already_there += 1
            entry.account.progress.settle(entry.number)
        for account, number in self.repeated:
            account.already_there += 1
            account.progress.settle(number)
        for reject in self.rejects:
            reject.account.rejected += 1
            reject.account.progress.settle(reject.number)

    def halves(self) -> tuple["Batch", "Batch"]:
        """Split it in two that hold the same: one may hold the document that MongoDB refuses, and each less than it."""
        items: list[Entry | Reject] = [*self.tweets.values(), *self.rejects]
        first, second = Batch(self.size), Batch(self.size)
        for place, item in enumerate(items):
            (first if place < len(items) // 2 else second).add(item)
        second.repeated.extend(self.repeated)
        return first, second


def reject_document(source: str, raw: str, error: str) -> dict[str, Any]:
    """Return the document that keeps an unusable event: its text, cut where it is very long, why, whence and when."""
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
