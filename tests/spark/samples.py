"""Invented change events of tweets: seeded, with ties, repeated users, missing members and other operations.

Also the statistics of these tweets, in the form in which their topics hold them.
"""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from tests.spark import reference
from tests.spark.reference import Row

TAGS = [f"tag{number}" for number in range(30)]
LANGUAGES = ["en", "ja", "es", "pt", "ar", "ko", "th", "fr", "tr", "id", "de", "it", "nl", "und"]


def tweet(chance: random.Random, number: int, users: int = 40) -> dict[str, Any]:
    """One document of the collection `tweets`."""
    user = chance.randrange(users)
    return {
        "_id": str(number),
        "text": f"tweet {number}",
        "lang": chance.choice([*LANGUAGES, None]),
        "user": {
            "id_str": str(1000 + user),
            "screen_name": f"user_{user}",
            "followers_count": user * 7 % 50 * 10,
            "verified": user % 5 == 0,
        },
        "hashtags": chance.sample(TAGS, chance.choice([0, 0, 1, 2])) * chance.choice([1, 1, 2]),
        "mentions": [f"user_{chance.randrange(users)}" for _ in range(chance.choice([0, 0, 1, 2]))],
        "kind": chance.choice(["original", "original", "reply", "retweet", "quote"]),
        "sentiment": round(chance.uniform(-1, 1), 4) if chance.random() > 0.3 else 0.0,
        "engagement": chance.choice([0.0, 0.0, 0.25, 0.5, 1.5]),
    }


def row(offset: int, change: Any, *, arrived: int, topic: str = "tweets", watermark: int = 0) -> Row:
    """One row of the source."""
    document = change.get("document") if isinstance(change, dict) else None
    return {
        "topic": topic,
        "offset": offset,
        "timestamp": arrived,
        "id": str(offset),
        "key": ((document or {}).get("user") or {}).get("id_str"),
        "msg": msgspec.json.encode(change).decode(),
        "watermark": watermark,
    }


def line(number: int, msg: Any) -> bytes:
    """Return the line that the broker stores for an event. Some events have a priority, a key and a producer."""
    stored: dict[str, Any] = {"offset": number, "timestamp": 1_700_000_000_000 + number, "id": f"id-{number}"}
    if number % 2:
        stored |= {"priority": 3, "key": "k", "producer": "p", "sequence": number}
    return msgspec.json.encode({**stored, "msg": msg})


def changes(
    count: int, *, seed: int = 7, start: int = 1_700_000_000_000, span_ms: int = 35_000
) -> list[dict[str, Any]]:
    """Return `count` change events whose times cover `span_ms`. One in ten is not an insert."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        op = chance.choice(["insert"] * 8 + ["snapshot", "update"])
        made.append(
            {
                "op": op,
                "collection": "tweets",
                "document": tweet(chance, number),
                "at": start + number * span_ms // count,
            }
        )
    return made


def statistics(ago: timedelta, window_ms: int = 10_000) -> tuple[list[Row], list[Row]]:
    """Return both statistics of four windows. The first window began `ago` before now, and one hashtag looks like HTML."""
    start = round((datetime.now(UTC) - ago).timestamp() * 1000) // window_ms * window_ms
    made = changes(400, start=start, span_ms=4 * window_ms)
    for change in made[:100]:
        change["document"]["hashtags"] = ["<script>alert(1)</script>"]
    rows = [row(offset, change, arrived=change["at"] + 20) for offset, change in enumerate(made)]
    computed = reference.tweets_stats(rows, window_ms), reference.users_stats(rows, window_ms)
    return [one for _, one in sorted(computed[0].items())], [one for _, one in sorted(computed[1].items())]


def others(window: Row) -> list[Any]:
    """Return messages that other clients may publish to a statistics topic, including an incomplete window."""
    return [
        "hello",
        None,
        17,
        [1],
        {},
        {"window": window["window"]},
        window | {"window": {"start": "now", "end": "then"}},
    ]


def with_totals(tweets: Sequence[Row], users: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The windows as the jobs publish them."""
    return (
        [one | {"totals": reference.tweets_totals([*tweets[: n + 1]])} for n, one in enumerate(tweets)],
        [one | {"totals": reference.users_totals([*users[: n + 1]])} for n, one in enumerate(users)],
    )


ODD: list[Any] = [
    {"op": "insert", "document": None, "at": 1_700_000_001_000},
    {"op": "insert", "document": {"user": None, "hashtags": None, "mentions": [None]}, "at": 1_700_000_001_001},
    {"op": "insert", "document": {"user": {"id_str": None}, "sentiment": None, "lang": "en"}, "at": 1_700_000_001_002},
    {
        "op": "insert",
        "document": {"user": {"id_str": "5", "followers_count": None}, "kind": None},
        "at": 1_700_000_001_003,
    },
    {"op": "insert", "document": {"user": {"id_str": "6"}, "text": "without a time"}},
    {"op": "insert", "document": {"user": {"id_str": "7"}}, "at": -(1 << 63)},
    {"op": "delete", "document": None, "at": 1_700_000_001_004},
    {"op": "gap", "document": None, "at": 1_700_000_001_005},
    {"delete": {"status": {"id": 1}}},
    {"limit": {"track": 3}},
    "a string",
    17,
    None,
    [],
]
"""Unusual messages that must not disturb any statistic. The first six are tweets."""
