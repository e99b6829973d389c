"""Publishing windows so that each is in its topic once, however often the backfill runs.

A window's sequence is its number since 1970, and windows are published in their order by one producer, which is named
after the database, the window's length and the event time. So the broker itself knows what it has: windows of an
earlier run, or of one that was killed, are duplicates to it, and later ones are stored.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice

from msgspec import Raw, Struct
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from broker import Event, Receipt, SyncClient
from spark.backfill.settings import BackfillSettings
from spark.link import Link
from spark.stats_topic import window_events
from spark.totals import newest_totals, with_totals

__all__ = ["Published", "publish_windows", "windows_of"]

_EVENTS_PER_CALL = 500


class Published(Struct):
    """How many windows were stored, and how many the topic had already."""

    stored: int = 0
    known: int = 0


def windows_of(stats: DataFrame, topic: str, window_ms: int) -> DataFrame:
    """Give one event a window in the windows' order: `id`, `msg`, `sequence`."""
    sequence = fn.unix_millis("start") / fn.lit(window_ms)
    events = window_events(stats, topic).withColumn(
        "start", fn.to_timestamp(fn.get_json_object("msg", "$.window.start"))
    )
    return events.select("id", "msg", sequence.cast("bigint").alias("sequence")).orderBy("sequence")


def publish_windows(windows: DataFrame, statistic: str, topic: str, settings: BackfillSettings) -> Published:
    """Publish `windows_of` in their order, a chunk at a time, with their totals. Raises what the broker refuses with."""
    producer = f"backfill.{settings.database}.{round(settings.window * 1000)}ms.{settings.event_time}"
    result = Published()
    with Link(settings.login(), name="spark-backfill") as link:
        for events in _chunks(_events(windows, producer)):
            receipts = link.call(partial(_publish, statistic, topic, producer, events))
            stored = sum(receipt.count for receipt in receipts if not receipt.is_duplicate)
            result.stored += stored
            result.known += len(events) - stored
    return result


def _publish(statistic: str, topic: str, producer: str, events: list[Event], client: SyncClient) -> list[Receipt]:
    # Its own totals: another database's or another length's windows may be in the topic.
    summed = with_totals(events, statistic, newest_totals(client, topic, statistic, producer))
    return client.publish_many(topic, summed)


def _events(windows: DataFrame, producer: str) -> Iterator[Event]:
    for row in windows.toLocalIterator():
        yield Event(id=row["id"], msg=Raw(row["msg"].encode()), producer=producer, sequence=row["sequence"])


def _chunks(events: Iterable[Event]) -> Iterator[list[Event]]:
    left = iter(events)
    while chunk := list(islice(left, _EVENTS_PER_CALL)):
        yield chunk
