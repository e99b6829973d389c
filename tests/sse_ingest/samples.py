"""Sample tweets."""

import json
from pathlib import Path
from typing import Any


def user(number: int = 1, **members: Any) -> dict[str, Any]:
    """Return a user object of Twitter's API 1.1."""
    return {
        "id": number,
        "id_str": str(number),
        "screen_name": f"user{number}",
        "name": f"User {number}",
        "followers_count": 10,
        "verified": False,
        **members,
    }


def status(number: int = 1, author: int = 1, **members: Any) -> dict[str, Any]:
    """Return a status object of Twitter's API 1.1."""
    return {
        "created_at": "Wed Jan 06 07:30:00 +0000 2016",
        "id": number,
        "id_str": str(number),
        "text": f"this is great {number}",
        "user": user(author),
        "entities": {"hashtags": [], "urls": [], "user_mentions": []},
        "favorite_count": 0,
        "retweet_count": 0,
        "lang": "en",
        **members,
    }


def envelope(tweet: dict[str, Any]) -> str:
    """Return the data of a message of the rtp-server."""
    return json.dumps({"message": {"tweet": tweet, "unix_timestamp_100us": 16523062290197}})


def write_lines(path: Path, objects: list[Any]) -> Path:
    """Write a file of JSON Lines. Strings are written unchanged, as lines."""
    path.write_text("".join((item if isinstance(item, str) else json.dumps(item)) + "\n" for item in objects))
    return path
