"""Convert topics and their events to rows."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET

from dashboard.history import History, counter_of
from dashboard.words import cut, number, pretty, rate, time_text
from tweetwire.protocol.events import StoredEvent
from tweetwire.protocol.units import format_bytes, format_seconds

__all__ = ["confirmation_text", "event_members", "event_rows", "is_place", "mark_rows", "matches", "topic_rows"]

SHOWN_CHARACTERS: Final = 160
_EXTRAS: Final = ("key", "parent", "headers", "producer", "sequence", "checkpoint")


def topic_rows(stats: Mapping[str, Any], history: History) -> list[dict[str, Any]]:
    """Return a row for each topic."""
    return [
        {
            "topic": name,
            "href": f"/topics/{name}",
            "events": report["next"] - report["earliest"],
            "rate": rate(history.rate_now(counter_of(name, "next"))),
            "earliest": f"@{report['earliest']}",
            "next": f"@{report['next']}",
            "size": format_bytes(report["bytes"]),
            "subscriptions": len(report["subscriptions"]),
            "dead": sum(one["dead"] for one in report["subscriptions"].values()),
        }
        for name, report in stats["topics"].items()
    ]


def mark_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each mark in the report on a topic, those with the largest lag first."""
    rows = [
        {
            "mark": name,
            "offset": f"@{one['offset']}",
            "lag": one["lag"],
            "excepted": one["excepted"],
            "overtaken": one["overtaken"],
        }
        for name, one in report["marks"].items()
    ]
    return sorted(rows, key=lambda row: (-row["lag"], row["mark"]))


def confirmation_text(report: Mapping[str, Any]) -> str:
    """Say what the confirmations of a topic wait for, or return "" if they wait for no mark."""
    wanted = report.get("confirm")
    if wanted is None:
        return ""
    within = format_seconds(wanted["within_ms"] / 1000)
    return f"publishers wait up to {within} for {' and '.join(wanted['after'])}"


def event_rows(events: Iterable[StoredEvent]) -> list[dict[str, Any]]:
    """Return a row for each event."""
    return [
        {
            "offset": event.offset,
            "event": f"@{event.offset}",
            "href": f"/topics/{event.topic}/{event.offset}",
            "time": time_text(event.timestamp),
            "id": cut(event.id, 60),
            "priority": event.priority,
            "key": "" if event.key is UNSET else cut(str(event.key), 40),
            "msg": cut(bytes(event.msg).decode(), SHOWN_CHARACTERS),
        }
        for event in events
    ]


def event_members(event: StoredEvent) -> list[tuple[str, str]]:
    """Return the members of an event besides its `msg`, formatted for people."""
    members = [
        ("topic", event.topic),
        ("offset", f"@{event.offset}"),
        ("time", f"{time_text(event.timestamp)} UTC"),
        ("id", event.id),
        ("priority", number(event.priority)),
    ]
    for name in _EXTRAS:
        value = getattr(event, name)
        if value is not UNSET:
            members.append((name, value if isinstance(value, str) else pretty(msgspec.to_builtins(value))))
    return members


def matches(event: StoredEvent, words: str) -> bool:
    """Whether an event's id, key or payload contains `words`, ignoring case."""
    wanted = words.casefold()
    texts = (event.id, "" if event.key is UNSET else str(event.key), bytes(event.msg).decode())
    return any(wanted in text.casefold() for text in texts)


def is_place(text: str) -> bool:
    """Whether a text could be a position in a log as the broker reads it: an offset, earliest, latest, or a time."""
    return text in {"earliest", "latest"} or (text[:1].isdigit() and len(text) < 40 and text.split() == [text])
