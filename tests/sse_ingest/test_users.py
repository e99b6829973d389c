"""The sums of users do not depend on how their tweets are split into batches."""

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from hypothesis import given
from hypothesis import strategies as st

from sse_ingest.handover import ScoredTweet
from sse_ingest.users import LAST_SCORES, by_user, engagement_document, user_document, user_update

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def scored(tweet_id: int, user_id: str, engagement: float, name: str = "a") -> ScoredTweet:
    return ScoredTweet(str(tweet_id), user_id, b"", bson.encode({"name": name}), engagement, [])


def members(document: RawBSONDocument) -> dict[str, Any]:
    return bson.decode(document.raw, CodecOptions(tz_aware=True))


def test_a_users_profile_is_that_of_the_latest_tweet() -> None:
    seen = by_user([scored(1, "u", 1.0, "old"), scored(2, "v", 2.0), scored(3, "u", 3.0, "new")])
    assert list(seen) == ["u", "v"]
    assert bson.decode(seen["u"].profile) == {"name": "new"}
    assert seen["u"].scores == [1.0, 3.0]


def test_a_new_user_was_first_and_last_seen_now() -> None:
    document = user_document("u", by_user([scored(1, "u", 1.0)])["u"], NOW)
    assert members(document) == {"_id": "u", "name": "a", "first_seen": NOW, "last_seen": NOW, "tweets_seen": 1}


def test_a_known_user_keeps_first_seen() -> None:
    update = user_update(by_user([scored(1, "u", 1.0), scored(2, "u", 1.0)])["u"], NOW)
    assert members(update["$set"]) == {"name": "a", "last_seen": NOW}
    assert update["$inc"] == {"tweets_seen": 2}


@given(st.lists(st.floats(0, 100), min_size=1, max_size=60), st.data())
def test_engagement_is_the_same_however_the_tweets_are_batched(scores: list[float], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(scores)), max_size=5)))
    document: dict[str, Any] | None = None
    for start, stop in zip([0, *cuts], [*cuts, len(scores)], strict=True):
        if batch := scores[start:stop]:
            seen = by_user(scored(number, "u", score) for number, score in enumerate(batch))["u"]
            document = engagement_document("u", seen, document)
    assert document is not None
    assert document["tweets"] == len(scores)
    assert document["engagement_sum"] == pytest.approx(sum(scores))
    assert document["engagement_mean"] == pytest.approx(sum(scores) / len(scores))
    assert document["last"] == scores[-LAST_SCORES:]
