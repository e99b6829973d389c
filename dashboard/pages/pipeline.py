"""The pipeline from the source to the statistics: ingester, change streams, Spark."""

import time
from typing import Final

from nicegui import ui

from dashboard.figures import charts
from dashboard.figures.pipeline import (
    LOGGER_STATS,
    batch_rows,
    change_rows,
    ingest_rows,
    ingest_series,
    percentiles,
)
from dashboard.figures.statistics import named, windows
from dashboard.link import DashboardLink
from dashboard.pages.frame import Refresh
from dashboard.pages.widgets import Chart, RowsTable, card
from tweetwire.statistics import TWEETS_STATS, USERS_STATS, TweetsWindow

__all__ = ["build"]

NO_INGESTER: Final = "no figures of an ingester yet: python -m sse_ingest --autostart"
NO_CHANGES: Final = "no changes of a database yet: python -m change_stream"
NO_SPARK: Final = "no batches yet: python -m spark all"
CHANGE_COLUMNS: Final = (
    ("topic", "topic", "text"),
    ("median", "lag, median", "number"),
    ("most", "lag, most", "number"),
    ("last", "last change", "number"),
    ("sequence", "sequence", "number", True),
    ("producer", "producer", "mono", True),
)
BATCH_COLUMNS: Final = (
    ("topic", "topic", "text"),
    ("batch", "batch", "number"),
    ("at", "published (UTC)", "text"),
    ("windows", "windows", "number", True),
    ("tweets", "tweets", "number"),
    ("late", "late", "number", True),
)


def build(link: DashboardLink) -> Refresh:
    """Build the page and return the function that updates it."""
    with ui.element("div").classes("halves"):
        with card("Ingester"):
            ingest = RowsTable(
                [("figure", "since its start", "text"), ("value", "", "number")],
                key="figure",
                empty=NO_INGESTER,
                label="ingester",
            )
        with card("Ingest workers"):
            workers = Chart("ingest workers", empty=NO_INGESTER)
        with card("Bulk writes of tweets to MongoDB, ms"):
            tweet_writes = Chart("milliseconds of bulk writes of tweets", empty=NO_INGESTER)
        with card("Bulk writes of users to MongoDB, ms"):
            user_writes = Chart("milliseconds of bulk writes of users", empty=NO_INGESTER)
    with card("Change streams: from MongoDB to the broker, the last changes"):
        changes = RowsTable(CHANGE_COLUMNS, key="topic", empty=NO_CHANGES, label="change streams")
    with card("From the change to its window, ms"):
        lags = Chart("milliseconds from a change to its arrival at the broker", empty=NO_SPARK)
    with card("Spark's last batches"):
        batches = RowsTable(BATCH_COLUMNS, key="key", empty=NO_SPARK, label="Spark batches")

    async def refresh() -> None:
        figures = await link.newest(LOGGER_STATS)
        last = figures[-1].decode() if figures else {}
        ingest.show(ingest_rows(last) if isinstance(last, dict) and last else [])
        workers.show(charts.lines(ingest_series(figures)))
        tweet_writes.show(charts.lines(percentiles(figures, "tweets_write_ms")))
        user_writes.show(charts.lines(percentiles(figures, "users_write_ms")))
        newest = {topic: await link.newest(topic) for topic in ("tweets", "users")}
        changes.show(change_rows(newest, round(time.time() * 1000)))
        statistics = {topic: await link.newest(topic) for topic in (TWEETS_STATS, USERS_STATS)}
        of_tweets = windows(statistics[TWEETS_STATS], TweetsWindow)
        lags.show(charts.lines(named(of_tweets, p50=["lag_ms", "p50"], p95=["lag_ms", "p95"])))
        batches.show(batch_rows(statistics))

    return refresh
