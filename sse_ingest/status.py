"""The state of the ingester in words, for the telnet port, and in figures, for `logger_stats`."""

from typing import Any

from sse_ingest.hashtags import HashtagCounts
from sse_ingest.ingest import Ingest
from sse_ingest.onlookers import printable

__all__ = ["figures", "hashtag_lines", "status_lines", "worker_lines"]


def status_lines(ingest: Ingest) -> list[str]:
    """Return the state of the ingester and the account of each source, as lines."""
    state = "ingesting" if ingest.is_started else "not ingesting; type twitter"
    lines = [f"{state}; {len(ingest.onlookers)} watching"]
    if ingest.store.outage is not None:
        lines.append(f"MongoDB does not accept batches: {ingest.store.outage}")
    for line in ingest.lines:
        reader = line.reader.state
        reason = f" ({reader.reason})" if reader.reason else ""
        counts = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in line.account.summary().items())
        lines.append(f"{reader.name}: {reader.state}{reason}; {counts}")
        if line.account.notices_by_name:
            notices = ", ".join(f"{count} {name}" for name, count in line.account.notices_by_name.most_common(8))
            lines.append(f"  notices: {notices}")
        if reader.gaps:
            lines.append(f"  {reader.gaps} reconnects without ids: the events sent meanwhile are lost")
    return [printable(line) for line in lines]


def worker_lines(ingest: Ingest) -> list[str]:
    """Return the size of each pool and the figures that determine the size, as lines."""
    return [
        f"{printable(line.pool.name)}: {line.pool.workers} workers, {line.pool.wanted} wanted "
        f"({line.pool.size.least}–{line.pool.size.most}); {len(line.inbox)} events wait; "
        f"{line.pool.seconds_per_event * 1e6:.0f} µs an event; "
        f"{line.pool.panics} planned panics of the source, {line.pool.crashes} crashes"
        for line in ingest.lines
    ]


def hashtag_lines(hashtags: HashtagCounts, most: int) -> list[str]:
    """Return the most frequent hashtags, as lines."""
    lines = [f"{count:7d} #{printable(tag)}" for tag, count in hashtags.top(most)] or ["no hashtags yet"]
    return lines if hashtags.is_whole else [*lines, "of new tweets only; the earlier ones are still being counted"]


def figures(ingest: Ingest) -> dict[str, Any]:
    """Return the current figures for `logger_stats`; the percentiles cover the time since the last call."""
    accounts = [line.account for line in ingest.lines]
    return {
        "workers": {line.pool.name: line.pool.workers for line in ingest.lines},
        "panics": sum(line.pool.panics for line in ingest.lines),
        "crashes": sum(line.pool.crashes for line in ingest.lines),
        "events": {
            "in": sum(account.read for account in accounts),
            "nested": sum(account.nested for account in accounts),
            "stored": sum(account.stored for account in accounts),
            "already_there": sum(account.already_there for account in accounts),
            "notices": sum(account.notices for account in accounts),
            "rejected": sum(account.rejected for account in accounts),
            "queued": sum(account.in_flight for account in accounts),
        },
        "worker_ms": ingest.worker_seconds.take_percentiles(),
        "tweets_write_ms": ingest.store.tweets_seconds.take_percentiles(),
        "users_write_ms": ingest.store.users_seconds.take_percentiles(),
    }
