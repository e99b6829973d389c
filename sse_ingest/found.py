"""The possible contents of an event of a source: tweets, notices, and unusable parts.

A shape (`sse_ingest.shapes`) makes these from the raw text, without scores and without a clock.
"""

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

__all__ = ["Found", "Kind", "Notice", "Panic", "Rejected", "Tweet", "User"]

Kind = Literal["original", "reply", "retweet", "quote"]


class User(Struct, kw_only=True, gc=False):
    """The author of a tweet; `profile` holds further members in the form that MongoDB stores."""

    id: str
    screen_name: str
    name: str
    followers_count: int = 0
    is_verified: bool = False
    is_bot: bool | None = None
    profile: dict[str, Any]


class Tweet(Struct, kw_only=True):
    """A tweet of any source, with the names of Twitter's API 1.1; `text` is the full text, without HTML entities."""

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


class Notice(Struct, array_like=True, tag=1):
    """An event that is not a tweet: a deletion, a limit, a heartbeat, or an event type that is not used."""

    name: str


class Rejected(Struct, array_like=True, tag=2):
    """A broken tweet. `raw` is its text if it was part of a larger event, else None."""

    error: str
    raw: str | None = None


Found = Tweet | Notice | Rejected


class Panic(Exception):
    """The rtp-server's kill message: a worker process that reads it must end."""
