"""Convert the views of a bridge to rows: the brokers that share an engine, and the topics that they hold.

Ages are those of the engine's clock when the bridge read it, and the time since then by the broker's clock.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from dashboard.words import age
from tweetwire.cluster import CentreView, TopicHeld, newest_views, standing_of
from tweetwire.protocol.events import StoredEvent

__all__ = ["broker_rows", "centre_rows", "held_rows", "views_of"]

Views = Mapping[str, tuple[CentreView, float]]
"""The newest view of each engine, and the seconds since the bridge published it."""


def views_of(events: Iterable[StoredEvent], now_ms: int) -> Views:
    """Return the newest view of each engine. `now_ms` is the time of the broker."""
    return {centre: (view, max(0.0, (now_ms - at_ms) / 1000)) for centre, (view, at_ms) in newest_views(events).items()}


def centre_rows(views: Views) -> list[dict[str, Any]]:
    """Return a row for each engine: whether it answers, and how many brokers share it."""
    rows = []
    for centre, (view, since_s) in views.items():
        answered = None if view.asked_s is None else view.asked_s + since_s
        words = "it has not answered yet" if answered is None else f"it last answered {age(answered)} ago"
        others = [f"{view.unreadable} brokers of another version" if view.unreadable else ""]
        others += [f"{view.left_out} brokers without room" if view.left_out else ""]
        rows.append(
            {
                "centre": centre,
                "brokers": len(view.brokers) + view.unreadable + view.left_out,
                "detail": "; ".join(filter(None, (view.trouble, words, *others))),
            }
        )
    return rows


def broker_rows(views: Views, identity: str) -> list[dict[str, Any]]:
    """Return a row for each broker at each engine. `identity` is that of the broker that is shown."""
    return [
        _broker_row(centre, view, since_s, number, identity)
        for centre, (view, since_s) in views.items()
        for number in range(len(view.brokers))
    ]


def held_rows(views: Views) -> list[dict[str, Any]]:
    """Return a row for each mark of each topic of each broker, the largest lag first. A topic without marks has one row."""
    rows = [
        {
            "key": f"{one.heartbeat.broker}/{held.topic}/{mark}",
            "address": one.heartbeat.address,
            "topic": held.topic,
            "earliest": held.earliest,
            "next": held.next,
            "mark": mark or "–",
            "lag": lag,
        }
        for view, _ in views.values()
        for one in view.brokers
        for held in one.heartbeat.topics
        for mark, lag in _lags(held)
    ]
    # A broker that shares two engines is in the views of both.
    unique = {row["key"]: row for row in rows}
    return sorted(unique.values(), key=lambda row: -1 if row["lag"] is None else row["lag"], reverse=True)


def _lags(held: TopicHeld) -> list[tuple[str, int | None]]:
    return list(held.lag.items()) or [("", None)]


def _broker_row(centre: str, view: CentreView, since_s: float, number: int, identity: str) -> dict[str, Any]:
    seen = view.brokers[number]
    heartbeat, age_s = seen.heartbeat, seen.age_s + since_s
    state = standing_of(heartbeat, age_s)
    return {
        "key": f"{centre} {heartbeat.broker}",
        "address": heartbeat.address,
        "state": state,
        "detail": _words(state, age_s, is_here=heartbeat.broker == identity),
        "topics": len(heartbeat.topics) + heartbeat.left_out,
        "lag": heartbeat.lag(),
        "centre": centre,
        "broker": heartbeat.broker,
        "version": heartbeat.version,
    }


def _words(state: str, age_s: float, *, is_here: bool) -> str:
    """Return what is known of a broker, in plain words."""
    which = "this broker; " if is_here else ""
    match state:
        case "silent" if is_here:
            return f"this broker; no heartbeat for {age(age_s)}: its bridge is stopped, or cannot reach the engine"
        case "silent":
            return f"no heartbeat for {age(age_s)}: the broker or its bridge is down, or cannot reach the engine"
        case "stopped":
            return f"{which}its bridge was stopped {age(age_s)} ago"
    return f"{which}last heartbeat {age(age_s)} ago"
