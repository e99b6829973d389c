"""The state of the ingester in words, for the telnet port, and in figures, for `logger_stats`."""

from typing import Any

from sse_ingest.hashtags import HashtagCounts
from sse_ingest.ingest import Ingest
from sse_ingest.onlookers import printable

__all__ = ["figures", "hashtag_lines", "status_lines", "worker_lines"]


def status_lines(ingest: Ingest) -> list[str]:
    """Return what was read and what became of it, a line for each source."""
    state = "ingesting" if ingest.is_started else "not ingesting; type twitter"
    lines = [f"{state}; {len(ingest.onlookers)} watching"]
    if ingest.store.outage is not None:
        lines.append(f"MongoDB does not take batches: {ingest.store.outage}")
    for line in ingest.lines:
        reader = line.reader.state
        reason = f" ({reader.reason})" if reader.reason else ""
        counts = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in line.account.summary().items())
        lines.append(f"{reader.name}: {reader.state}{reason}; {counts}")
        if line.account.notices_by_name:
            notices = ", ".join(f"{count} {name}" for name, count in line.account.notices_by_name.most_common(8))
            lines.append(f"  notices: {notices}")
        if reader.gaps:
            lines.append(f"  {reader.gaps} times lost without ids: what was sent meanwhile cannot be had again")
    return [printable(line) for line in lines]


def worker_lines(ingest: Ingest) -> list[str]:
    """Return the size of each pool and why it has it."""
    return [
        f"{printable(line.pool.name)}: {line.pool.workers} workers, {line.pool.wanted} wanted "
        f"({line.pool.size.least}–{line.pool.size.most}); {len(line.inbox)} events wait; "
        f"{line.pool.seconds_per_event * 1e6:.0f} µs an event; {line.pool.crashes} crashes"
        for line in ingest.lines
    ]


def hashtag_lines(hashtags: HashtagCounts, most: int) -> list[str]:
    """Return the most frequent hashtags."""
    lines = [f"{count:7d} #{printable(tag)}" for tag, count in hashtags.top(most)] or ["no hashtags yet"]
    return lines if hashtags.is_whole else [*lines, "of new tweets alone; those of earlier times are being counted"]


def figures(ingest: Ingest) -> dict[str, Any]:
    """Return what `logger_stats` says of now; the percentiles are of the time since this was asked last."""
    accounts = [line.account for line in ingest.lines]
    return {
        "workers": {line.pool.name: line.pool.workers for line in ingest.lines},
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
        "worker_ms": ingest.worker_seconds.take(),
        "tweets_write_ms": ingest.store.tweets_seconds.take(),
        "users_write_ms": ingest.store.users_seconds.take(),
    }
