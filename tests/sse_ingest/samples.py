"""Tweets to test with, and the real recordings where they are."""

import json
from pathlib import Path
from typing import Any

import pytest

RECORDINGS = Path(__file__).parents[3] / "shared" / "data"


def recording(name: str) -> Path:
    """The recorded file, or a skip where the recordings are absent."""
    path = RECORDINGS / name
    if not path.exists():
        pytest.skip(f"the recording {name} is not here")
    return path


def user(number: int = 1, **members: Any) -> dict[str, Any]:
    """A Twitter v1.1 user object."""
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
    """A Twitter v1.1 status object."""
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
    """The data of the rtp-server's message."""
    return json.dumps({"message": {"tweet": tweet, "unix_timestamp_100us": 16523062290197}})


def write_lines(path: Path, objects: list[Any]) -> Path:
    """JSON Lines; text goes in as it is."""
    path.write_text("".join((item if isinstance(item, str) else json.dumps(item)) + "\n" for item in objects))
    return path
