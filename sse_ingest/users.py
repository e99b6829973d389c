"""Compute the changes that a batch of new tweets makes to `users` and `users_engagements`, as pure functions.

Both collections count a user's tweets. The counts are exact because these functions receive only tweets that are inserted in
the same transaction (see `sse_ingest.store`).
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument
from msgspec import Struct

from sse_ingest.handover import ScoredTweet

__all__ = ["LAST_SCORES", "Seen", "by_user", "engagement_document", "user_document", "user_update"]

LAST_SCORES = 20
"""The number of a user's latest engagement scores that are kept."""


class Seen(Struct):
    """A batch's data about one user: the profile (BSON) of the latest tweet, and each tweet's engagement in order."""

    profile: bytes
    scores: list[float]


def by_user(tweets: Iterable[ScoredTweet]) -> dict[str, Seen]:
    """Group new tweets by author, keeping their order of arrival."""
    users: dict[str, Seen] = {}
    for tweet in tweets:
        seen = users.get(tweet.user_id)
        if seen is None:
            users[tweet.user_id] = Seen(tweet.profile, [tweet.engagement])
        else:
            seen.profile = tweet.profile
            seen.scores.append(tweet.engagement)
    return users


def user_document(user_id: str, seen: Seen, now: datetime) -> RawBSONDocument:
    """Return the document of a user who is seen for the first time."""
    times = {"first_seen": now, "last_seen": now, "tweets_seen": len(seen.scores)}
    return _joined(bson.encode({"_id": user_id}), seen.profile, bson.encode(times))


def user_update(seen: Seen, now: datetime) -> dict[str, Any]:
    """Return the update of a user who was seen before."""
    profile = _joined(seen.profile, bson.encode({"last_seen": now}))
    return {"$set": profile, "$inc": {"tweets_seen": len(seen.scores)}}


def engagement_document(user_id: str, seen: Seen, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a user's engagement after the batch; `before` is the stored document, None for a new user."""
    before = before or {}
    tweets = before.get("tweets", 0) + len(seen.scores)
    total = before.get("engagement_sum", 0.0) + sum(seen.scores)
    return {
        "_id": user_id,
        "tweets": tweets,
        "engagement_sum": total,
        "engagement_mean": total / tweets,
        "last": [*before.get("last", []), *seen.scores][-LAST_SCORES:],
    }


def _joined(*documents: bytes) -> RawBSONDocument:
    """Return a document with the members of all `documents`, which must not share a member."""
    # BSON (https://bsonspec.org): the length of the whole in four bytes, the members, a zero byte.
    members = b"".join([document[4:-1] for document in documents])
    return RawBSONDocument(b"%b%b\0" % ((len(members) + 5).to_bytes(4, "little"), members))
