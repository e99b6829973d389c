"""Query the report's figures from MongoDB: totals, curves over the time of storing, and lists."""

from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from pymongo.asynchronous.database import AsyncDatabase

__all__ = ["Curves", "ReportFigures", "gather", "step_of"]

Document = dict[str, Any]
Row = tuple[str, float]


class Curves(Struct):
    """Values for equal steps of time, with the start of each step. A value is None if nothing was stored in its step."""

    times: list[datetime]
    step_s: float
    per_second: list[float]
    sentiment: list[float | None]


class ReportFigures(Struct):
    """All figures of the report. The rows of a list are in descending order, equal counts alphabetically."""

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
    """Return the length of a step in whole milliseconds: `steps` of these lengths cover the time from `first` to `last`."""
    span_ms = int((last - first) / timedelta(milliseconds=1)) + 1
    return timedelta(milliseconds=max(-(-span_ms // steps), 1))


async def gather(database: AsyncDatabase[Document], since: datetime | None, steps: int, top: int) -> ReportFigures:
    """Query the figures of the tweets stored since `since`, or of all tweets. Raises PyMongoError.

    Args:
        database: the ingester's database.
        since: the earliest time of storing, or None.
        steps: the number of points of each curve.
        top: the number of rows of each list.
    """
    wanted: Document = {"ingested_at": {"$gte": since}} if since else {}
    totals = await _aggregate(
        database,
        "tweets",
        wanted,
        {"$group": {"_id": None, "tweets": {"$sum": 1}, "sentiment": {"$avg": "$sentiment"}}},
    )
    authors = await _aggregate(database, "tweets", wanted, {"$group": {"_id": "$user.id_str"}}, {"$count": "users"})
    rejected = {"at": {"$gte": since}} if since else {}
    return ReportFigures(
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
