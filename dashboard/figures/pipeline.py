"""The figures from the source to the statistics: the ingester's, the change streams' lag, and Spark's batches."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final

from msgspec import UNSET

from dashboard.figures.statistics import windows
from dashboard.history import Series
from dashboard.words import age, number, time_text
from tweetwire.protocol.events import StoredEvent
from tweetwire.statistics import TWEETS_STATS, WINDOWS

__all__ = ["LOGGER_STATS", "batch_rows", "change_lags", "change_rows", "ingest_rows", "ingest_series", "percentiles"]

LOGGER_STATS: Final = "logger_stats"
PERCENTILES: Final = ("p75", "p85", "p95")
CHANGES: Final = frozenset({"insert", "update", "replace", "delete"})
ROWS_PER_BATCH_MAX: Final = 1 << 20
"""The sequences of a batch of Spark's sink: those of batch n begin at n times this number."""


def ingest_rows(message: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the ingester's last report, as a row for each figure."""
    rows = [
        {"figure": f"workers of {name}", "value": number(count)} for name, count in message.get("workers", {}).items()
    ]
    if "panics" in message:
        rows.append(
            {"figure": "planned panics of the source (simulator or rtp-server)", "value": number(message["panics"])}
        )
    rows.append({"figure": "workers that crashed", "value": number(message.get("crashes", 0))})
    return rows + [
        {"figure": f"events {name.replace('_', ' ')}", "value": number(count)}
        for name, count in message.get("events", {}).items()
    ]


def ingest_series(events: Iterable[StoredEvent]) -> Series:
    """Return the number of workers of all sources over time."""
    points = []
    for event in events:
        message: Any = event.decode()
        if isinstance(message, dict) and "workers" in message:
            points.append((event.timestamp, float(sum(message["workers"].values()))))
    return {"workers": points}


def percentiles(events: Iterable[StoredEvent], member: str) -> Series:
    """Return the percentiles of a duration (ms) over time, such as ``tweets_write_ms``."""
    found: Series = {name: [] for name in PERCENTILES}
    for event in events:
        message: Any = event.decode()
        values = message.get(member) if isinstance(message, dict) else None
        if not isinstance(values, dict):
            continue
        for name in PERCENTILES:
            if values.get(name) is not None:
                found[name].append((event.timestamp, float(values[name])))
    return found


def change_lags(events: Iterable[StoredEvent]) -> list[float]:
    """Return for each change the time in ms from the change in MongoDB to its arrival at the broker."""
    lags = []
    for event in events:
        message: Any = event.decode()
        if isinstance(message, dict) and message.get("op") in CHANGES and isinstance(message.get("at"), int):
            lags.append(float(max(0, event.timestamp - message["at"])))
    return lags


def change_rows(newest: Mapping[str, Sequence[StoredEvent]], now_ms: int) -> list[dict[str, str]]:
    """Return a row for each topic that a change stream publishes to, from its last events."""
    rows = []
    for topic, events in newest.items():
        lags = sorted(change_lags(events))
        if not lags or events[-1].producer is UNSET:
            continue
        rows.append(
            {
                "topic": topic,
                "producer": str(events[-1].producer),
                "sequence": number(None if events[-1].sequence is UNSET else events[-1].sequence),
                "median": f"{number(median(lags))} ms",
                "most": f"{number(lags[-1])} ms",
                "last": f"{age((now_ms - events[-1].timestamp) / 1000)} ago",
            }
        )
    return rows


def batch_rows(newest: Mapping[str, Sequence[StoredEvent]]) -> list[dict[str, str]]:
    """Return a row for each of Spark's last batches that published windows, the latest first."""
    batches: dict[tuple[str, int], list[StoredEvent]] = {}
    for topic, events in newest.items():
        for event in events:
            if event.sequence is not UNSET:
                batches.setdefault((topic, event.sequence // ROWS_PER_BATCH_MAX), []).append(event)
    latest = sorted(batches.items(), key=lambda item: -item[1][-1].timestamp)[:20]
    return [_batch_row(topic, batch, events) for (topic, batch), events in latest]


def _batch_row(topic: str, batch: int, events: Sequence[StoredEvent]) -> dict[str, str]:
    found = windows(events, WINDOWS[topic])
    return {
        "key": f"{topic}/{batch}",
        "topic": topic,
        "batch": number(batch),
        "at": time_text(events[-1].timestamp),
        "windows": number(len(events)),
        "tweets": number(sum(window.tweets for window in found)) if topic == TWEETS_STATS else "–",
        "late": number(sum(window.late for window in found)),
    }
