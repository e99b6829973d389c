"""Publish windows so that each is in its topic once, however often the backfill runs.

A window's sequence is its number since 1970, and one producer publishes the windows in order. The producer is named after
the database, the window's length and the event time. So the broker recognises windows of an earlier or killed run as
duplicates, and stores later ones.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice

from msgspec import Raw, Struct
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from spark.apps.backfill.settings import BackfillSettings
from spark.connector.link import SparkLink
from spark.connector.totals import newest_totals, with_totals
from spark.statistics.stats_topic import window_events
from tweetwire import Event, Receipt, SyncClient

__all__ = ["Published", "publish_windows", "windows_of"]

_EVENTS_PER_CALL = 500


class Published(Struct):
    """How many windows were stored, and how many the topic already had."""

    stored: int = 0
    known: int = 0


def windows_of(stats: DataFrame, topic: str, window_ms: int) -> DataFrame:
    """Return one row per window, in order, with the columns `id`, `msg` and `sequence` of its event."""
    sequence = fn.unix_millis("start") / fn.lit(window_ms)
    events = window_events(stats, topic).withColumn(
        "start", fn.to_timestamp(fn.get_json_object("msg", "$.window.start"))
    )
    return events.select("id", "msg", sequence.cast("bigint").alias("sequence")).orderBy("sequence")


def publish_windows(windows: DataFrame, statistic: str, topic: str, settings: BackfillSettings) -> Published:
    """Publish the rows of `windows_of` in chunks, with their totals. Raises the broker's Refusal."""
    producer = f"backfill.{settings.database}.{round(settings.window * 1000)}ms.{settings.event_time}"
    result = Published()
    with SparkLink(settings.login(), name="spark-backfill") as link:
        for events in _chunks(_events(windows, producer)):
            receipts = link.call(partial(_publish, statistic, topic, producer, events))
            stored = sum(receipt.count for receipt in receipts if not receipt.is_duplicate)
            result.stored += stored
            result.known += len(events) - stored
    return result


def _publish(statistic: str, topic: str, producer: str, events: list[Event], client: SyncClient) -> list[Receipt]:
    # Read only this producer's totals: the topic may also hold windows of another database or length.
    summed = with_totals(events, statistic, newest_totals(client, topic, statistic, producer))
    return client.publish_many(topic, summed)


def _events(windows: DataFrame, producer: str) -> Iterator[Event]:
    for row in windows.toLocalIterator():
        yield Event(id=row["id"], msg=Raw(row["msg"].encode()), producer=producer, sequence=row["sequence"])


def _chunks(events: Iterable[Event]) -> Iterator[list[Event]]:
    left = iter(events)
    while chunk := list(islice(left, _EVENTS_PER_CALL)):
        yield chunk
