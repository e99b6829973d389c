"""Batches to store, and checks of the invariants of the stored documents."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo.database import Database

from sse_ingest.account import SourceAccount
from sse_ingest.batch import TweetEntry, WriteBatch
from sse_ingest.handover import RawEvent, ScoredTweet
from sse_ingest.worker import WorkerJob, find

JOB = WorkerJob("twitter", "", "test")


def scored(item: dict[str, Any]) -> list[ScoredTweet]:
    outcomes = find(RawEvent(json.dumps(item).encode()), JOB, lambda _: 0.25, datetime.now(UTC))
    return [outcome for outcome in outcomes if isinstance(outcome, ScoredTweet)]


def batch_of(account: SourceAccount, *items: dict[str, Any]) -> WriteBatch:
    batch = WriteBatch(1000)
    for item in items:
        for tweet in scored(item):
            batch.add_entry(TweetEntry(tweet, account))
    return batch


def assert_counts_are_exact(database: Database[dict[str, Any]]) -> None:
    """Assert the invariant of `sse_ingest.store`: the counts of users equal those of the stored tweets."""
    of_tweets = {
        group["_id"]: (group["tweets"], pytest.approx(group["sum"]))
        for group in database.tweets.aggregate(
            [{"$group": {"_id": "$user.id_str", "tweets": {"$sum": 1}, "sum": {"$sum": "$engagement"}}}]
        )
    }
    assert {one["_id"]: one["tweets_seen"] for one in database.users.find()} == {
        user_id: tweets for user_id, (tweets, _) in of_tweets.items()
    }
    assert {
        one["_id"]: (one["tweets"], one["engagement_sum"]) for one in database.users_engagements.find()
    } == of_tweets
