"""What an event of a source turns out to hold: tweets, notices, and what cannot be used.

A shape (`sse_ingest.shapes`) makes these from the raw text, without scores and without a clock.
"""

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

__all__ = ["Found", "Kind", "Notice", "Panic", "Tweet", "Unusable", "User"]

Kind = Literal["original", "reply", "retweet", "quote"]


class User(Struct, kw_only=True, gc=False):
    """The author of a tweet; `profile` holds further members as MongoDB is to keep them."""

    id: str
    screen_name: str
    name: str
    followers_count: int = 0
    is_verified: bool = False
    is_bot: bool | None = None
    profile: dict[str, Any]


class Tweet(Struct, kw_only=True):
    """A tweet of any source, in the words of Twitter's API 1.1; `text` is the full one, without HTML entities."""

    id: str
    text: str
    user: User
    lang: str | None = None
    created_at: datetime | None = None
    hashtags: list[str]
    mentions: list[str]
    urls: list[str]
    kind: Kind = "original"
    retweet_of: str | None = None
    favorite_count: int = 0
    retweet_count: int = 0


class Notice(Struct):
    """Something a stream says that is no tweet: a deletion, a limit, a heartbeat, an event type of no use here."""

    name: str


class Unusable(Struct):
    """What should have been a tweet and is none; `raw` is its text where it was part of a larger event, else None."""

    error: str
    raw: str | None = None


Found = Tweet | Notice | Unusable


class Panic(Exception):
    """The rtp-server's kill message: whoever reads it must die of it."""
