"""The documents of `tweets` and the profiles of `users`, as MongoDB keeps them."""

from datetime import datetime
from typing import Any

from sse_ingest.found import Tweet, User

__all__ = ["profile_document", "tweet_document"]


def tweet_document(
    tweet: Tweet, *, sentiment: float, engagement: float, source: str, ingested_at: datetime
) -> dict[str, Any]:
    """Return the document of one tweet. It is written once: what the tweet was when it was first seen."""
    return {
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
        "sentiment": sentiment,
        "engagement": engagement,
        "source": source,
        "ingested_at": ingested_at,
    }


def profile_document(user: User) -> dict[str, Any]:
    """Return the members of a user's document that say who it is; when and how often it was seen is added later."""
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
