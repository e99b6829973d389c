"""Batches to store, and what has to be true of what is stored."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo.database import Database

from sse_ingest.account import Account
from sse_ingest.batch import Batch, Entry
from sse_ingest.handover import RawEvent, Scored
from sse_ingest.worker import Job, find

JOB = Job("twitter", "", "test")


def scored(item: dict[str, Any]) -> list[Scored]:
    findings = find(RawEvent(json.dumps(item).encode()), JOB, lambda _: 0.25, datetime.now(UTC))
    return [finding for finding in findings if isinstance(finding, Scored)]


def batch_of(account: Account, *items: dict[str, Any]) -> Batch:
    batch = Batch(1000)
    for item in items:
        for tweet in scored(item):
            batch.add(Entry(tweet, account))
    return batch


def assert_counts_are_exact(database: Database[dict[str, Any]]) -> None:
    """The invariant of `sse_ingest.store`."""
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
