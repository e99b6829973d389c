"""The documents of `tweets` and the profiles of `users`, as MongoDB stores them."""

from datetime import datetime
from typing import Any

from msgspec import Struct

from sse_ingest.found import Tweet, User
from sse_ingest.scoring import CHARACTERS_SCORED

__all__ = ["Scores", "profile_document", "tweet_document"]


class Scores(Struct, frozen=True):
    """The scores that the ingester adds to a tweet."""

    sentiment: float
    engagement: float


def tweet_document(tweet: Tweet, scores: Scores, *, source: str, ingested_at: datetime) -> dict[str, Any]:
    """Return the document of one tweet. It is written once, when the tweet is first seen, and never updated.

    If only the beginning of the text was scored, `scored_characters` is its length.
    """
    document = {
        "_id": tweet.id,
        "text": tweet.text,
        "lang": tweet.lang,
        "created_at": tweet.created_at,
        "user": _author(tweet.user),
        "hashtags": tweet.hashtags,
        "mentions": tweet.mentions,
        "urls": tweet.urls,
        "kind": tweet.kind,
        "retweet_of": tweet.retweet_of,
        "favorite_count": tweet.favorite_count,
        "retweet_count": tweet.retweet_count,
        "sentiment": scores.sentiment,
        "engagement": scores.engagement,
        "source": source,
        "ingested_at": ingested_at,
    }
    if len(tweet.text) > CHARACTERS_SCORED:
        document["scored_characters"] = CHARACTERS_SCORED
    return document


def profile_document(user: User) -> dict[str, Any]:
    """Return the members of a user's document that describe the user; times and counts are added later."""
    profile = {
        "screen_name": user.screen_name,
        "name": user.name,
        "followers_count": user.followers_count,
        "verified": user.is_verified,
        **user.profile,
    }
    if user.is_bot is not None:
        profile["bot"] = user.is_bot
    return profile


def _author(user: User) -> dict[str, Any]:
    author = {
        "id_str": user.id,
        "screen_name": user.screen_name,
        "name": user.name,
        "followers_count": user.followers_count,
        "verified": user.is_verified,
    }
    if user.is_bot is not None:
        author["bot"] = user.is_bot
    return author
