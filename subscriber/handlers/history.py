"""``python -m subscriber history`` shows how often each event was tried, how long it took, and which tries failed."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import anyio
import msgspec
from msgspec import Struct
from pydantic import Field
from rich.console import Console
from rich.table import Table

from subscriber.handlers.tries import HISTORY, Try, tries_of
from subscriber.stress.latency import LatencyHistogram
from tweetwire import Refusal
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.program import ClientSettings, Name, settings_config

__all__ = ["EventHistory", "HistorySettings", "Summary", "histories", "show_history", "summaries"]

_WIDTH = 140


class HistorySettings(ClientSettings):
    """Show the tries and processing times of handled events, the slowest first, and a summary by subscription."""

    model_config = settings_config("python -m subscriber history")

    history: Name = Field(HISTORY, description="topic of the history")
    from_: str = Field(
        "earliest", alias="from", description="where to begin: earliest, an offset of the history, or a time"
    )
    topic: Name | None = Field(None, description="only events of this topic")
    as_: Name | None = Field(None, alias="as", description="only events handled by this subscription")
    id: str | None = Field(None, description="only events with this id")
    failed: bool = Field(False, description="only events with a failed try")
    limit: int = Field(20, ge=1, description="the most events to show")
    report: Literal["text", "json"] = Field("text", description="for people, or one JSON line an event")


class EventHistory(Struct, frozen=True):
    """All tries of one event for one subscription, in order."""

    topic: str
    subscription: str
    offset: int
    id: str
    tries: Sequence[Try]

    @property
    def seconds(self) -> float:
        """The processing time of all tries, in seconds."""
        return sum(one.seconds for one in self.tries)

    @property
    def has_failed(self) -> bool:
        """Whether a try failed."""
        return any(one.outcome == "failed" for one in self.tries)


class Summary(Struct, frozen=True):
    """The totals of one subscription of a topic; times in ms."""

    topic: str
    subscription: str
    events: int
    tries: int
    failed: int
    p50: float | None
    p99: float | None
    max: float
    errors: dict[str, int]


def histories(tries: Iterable[Try]) -> list[EventHistory]:
    """Group tries by event; the events with the longest processing time come first."""
    by_event: dict[tuple[str, str, int], list[Try]] = {}
    for one in tries:
        by_event.setdefault((one.topic, one.subscription, one.offset), []).append(one)
    found = [
        EventHistory(*key, of[0].id, sorted(of, key=lambda one: (one.at, one.attempt))) for key, of in by_event.items()
    ]
    return sorted(found, key=lambda one: (-one.seconds, one.topic, one.subscription, one.offset))


def summaries(events: Iterable[EventHistory]) -> list[Summary]:
    """Return the totals of each subscription."""
    by_subscription: dict[tuple[str, str], list[EventHistory]] = {}
    for event in events:
        by_subscription.setdefault((event.topic, event.subscription), []).append(event)
    return [_summary(*key, of) for key, of in sorted(by_subscription.items())]


async def show_history(settings: HistorySettings, stop: anyio.Event) -> None:
    """Read the topic and print the history. Raises StartError if there is no history."""
    found = histories(one for one in await _read(settings) if _is_wanted(one, settings))
    wanted = [event for event in found if event.has_failed or not settings.failed]
    if settings.report == "json":
        for event in wanted[: settings.limit]:
            sys.stdout.write(msgspec.json.encode(event).decode() + "\n")
        return
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    console.print(_events_table(wanted[: settings.limit], len(wanted)))
    console.print(_summary_table(summaries(wanted)))


async def _read(settings: HistorySettings) -> list[Try]:
    tries: list[Try] = []
    login = settings.login()
    async with login.client("history") as client:
        try:
            page = await client.read(settings.history, settings.from_)
            while page.events:
                for event in page.events:
                    tries += tries_of(event)
                page = await client.read(settings.history, page.next)
        except Refusal as refusal:
            reason = login.reason(refusal)
            raise StartError(f"there is no history to read from {settings.history}: {reason}") from refusal
    return tries


def _is_wanted(one: Try, settings: HistorySettings) -> bool:
    return (
        settings.topic in {None, one.topic}
        and settings.as_ in {None, one.subscription}
        and settings.id in {None, one.id}
    )


def _summary(topic: str, subscription: str, events: Sequence[EventHistory]) -> Summary:
    times, errors = LatencyHistogram(), Counter[str]()
    tries = [one for event in events for one in event.tries]
    for one in tries:
        times.record(1000 * one.seconds)
        if one.error is not None:
            errors[one.error] += 1
    failed = sum(one.outcome == "failed" for one in tries)
    p50, p99 = times.percentile(0.5), times.percentile(0.99)
    return Summary(topic, subscription, len(events), len(tries), failed, p50, p99, times.max_ms, dict(errors))


def _events_table(events: Sequence[EventHistory], found: int) -> Table:
    table = Table(title=f"{len(events):,} of {found:,} events, the slowest first", title_justify="left")
    for name in ("topic", "subscription", "event", "tries (ms)", "errors"):
        table.add_column(name, overflow="fold")
    for event in events:
        times = " ".join(f"{1000 * one.seconds:.1f}{'!' if one.outcome == 'failed' else ''}" for one in event.tries)
        errors = "; ".join(f"{one.error}: {one.message}" for one in event.tries if one.error is not None)
        table.add_row(event.topic, event.subscription, f"{event.id} @{event.offset}", times, errors)
    return table


def _summary_table(all_summaries: Sequence[Summary]) -> Table:
    table = Table(title="by subscription", title_justify="left")
    for name in ("topic", "subscription", "events", "tries", "failed", "p50 ms", "p99 ms", "max ms", "errors"):
        table.add_column(name, overflow="fold")
    for one in all_summaries:
        times = ("" if value is None else f"{value:.1f}" for value in (one.p50, one.p99, one.max))
        errors = ", ".join(f"{name} {count}" for name, count in one.errors.items())
        table.add_row(one.topic, one.subscription, str(one.events), str(one.tries), str(one.failed), *times, errors)
    return table
