"""What the report tells, asked of MongoDB: totals, curves over the time of storing, and lists."""

from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from pymongo.asynchronous.database import AsyncDatabase

__all__ = ["Curves", "Figures", "gather", "step_of"]

Document = dict[str, Any]
Row = tuple[str, float]


class Curves(Struct):
    """Values at the beginnings of equal steps of time; None where nothing was stored."""

    times: list[datetime]
    step_s: float
    per_second: list[float]
    sentiment: list[float | None]


class Figures(Struct):
    """All of it. The rows of the lists are in descending order, ties in the alphabet's."""

    tweets: int
    users: int
    rejected: int
    sentiment: float | None
    curves: Curves
    hashtags: list[Row]
    languages: list[Row]
    kinds: list[Row]
    sources: list[Row]
    authors: list[Row]
    reasons: list[Row]


def step_of(first: datetime, last: datetime, steps: int) -> timedelta:
    """Return the length of a step, whole milliseconds, so that `steps` of them reach from `first` beyond `last`."""
    span_ms = int((last - first) / timedelta(milliseconds=1)) + 1
    return timedelta(milliseconds=max(-(-span_ms // steps), 1))


async def gather(database: AsyncDatabase[Document], since: datetime | None, steps: int, top: int) -> Figures:
    """Ask for the figures of tweets stored since `since`. Raises PyMongoError."""
    wanted: Document = {"ingested_at": {"$gte": since}} if since else {}
    totals = await _aggregate(
        database,
        "tweets",
        wanted,
        {"$group": {"_id": None, "tweets": {"$sum": 1}, "sentiment": {"$avg": "$sentiment"}}},
    )
    authors = await _aggregate(database, "tweets", wanted, {"$group": {"_id": "$user.id_str"}}, {"$count": "users"})
    rejected = {"at": {"$gte": since}} if since else {}
    return Figures(
        tweets=totals[0]["tweets"] if totals else 0,
        users=authors[0]["users"] if authors else 0,
        rejected=await database.rejected_tweets.count_documents(rejected),
        sentiment=totals[0]["sentiment"] if totals else None,
        curves=await _curves(database, wanted, steps),
        hashtags=await _top(database, wanted, "$hashtags", top, unwind=True),
        languages=await _top(database, wanted, "$lang", top),
        kinds=await _top(database, wanted, "$kind", top),
        sources=await _top(database, wanted, "$source", top),
        authors=await _top(database, wanted, "$user.screen_name", top),
        reasons=await _top(database, rejected, "$error", top, collection="rejected_tweets"),
    )


async def _curves(database: AsyncDatabase[Document], wanted: Document, steps: int) -> Curves:
    ends = await _aggregate(
        database,
        "tweets",
        wanted,
        {"$group": {"_id": None, "first": {"$min": "$ingested_at"}, "last": {"$max": "$ingested_at"}}},
    )
    if not ends:
        return Curves([], 0.0, [], [])
    first, step = ends[0]["first"], step_of(ends[0]["first"], ends[0]["last"], steps)
    step_ms = step // timedelta(milliseconds=1)
    place = {"$floor": {"$divide": [{"$subtract": ["$ingested_at", first]}, step_ms]}}
    groups = await _aggregate(
        database,
        "tweets",
        wanted,
        {"$group": {"_id": place, "tweets": {"$sum": 1}, "sentiment": {"$avg": "$sentiment"}}},
    )
    by_place = {int(group["_id"]): group for group in groups}
    places = range(max(by_place) + 1)
    return Curves(
        [first + place * step for place in places],
        step.total_seconds(),
        [by_place.get(place, {}).get("tweets", 0) / step.total_seconds() for place in places],
        [by_place.get(place, {}).get("sentiment") for place in places],
    )


async def _top(
    database: AsyncDatabase[Document],
    wanted: Document,
    member: str,
    most: int,
    *,
    collection: str = "tweets",
    unwind: bool = False,
) -> list[Row]:
    stages: list[Document] = [{"$unwind": member}] if unwind else []
    stages += [
        {"$group": {"_id": member, "count": {"$sum": 1}}},
        {"$sort": {"count": -1, "_id": 1}},
        {"$limit": most},
    ]
    rows = await _aggregate(database, collection, wanted, *stages)
    return [(str(row["_id"]) if row["_id"] is not None else "unknown", row["count"]) for row in rows]


async def _aggregate(
    database: AsyncDatabase[Document], collection: str, wanted: Document, *stages: Document
) -> list[Document]:
    cursor = await database[collection].aggregate([{"$match": wanted}, *stages], allowDiskUse=True)
    return await cursor.to_list()
