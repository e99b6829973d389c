"""Infer the state of each program of the stack from its connections and from the events that it publishes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from dashboard.words import age, number

__all__ = ["SIGNS", "client_rows", "program_rows"]


class Sign(NamedTuple):
    """The signs of a program: the name of its connections, a topic it publishes to, and the longest pause between events."""

    program: str
    client: str
    topic: str | None
    fresh_s: float


SIGNS: Final = (
    Sign("sse_ingest", "sse_ingest", "logger_stats", 20),
    Sign("change_stream", "change_stream", "tweets", 60),
    Sign("subscriber", "subscriber", None, 0),
    Sign("spark", "spark", "tweets_stats", 60),
)


def program_rows(
    stats: Mapping[str, Any],
    clients: Sequence[Mapping[str, Any]] | None,
    newest_ms: Mapping[str, int],
    now_ms: int,
) -> list[dict[str, str]]:
    """Return a row for the broker and for each program, with its state.

    `clients` are the connected clients, None if the user may not see them. `newest_ms` are the times of the topics' last
    events, in milliseconds since 1970.
    """
    first = {
        "program": "broker",
        "state": "running",
        "detail": f"{number(stats['connections'])} connections, {number(stats['commands'])} commands since its start",
    }
    return [first, *(_row(sign, clients, newest_ms.get(sign.topic or ""), now_ms) for sign in SIGNS)]


def client_rows(clients: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each client name, with the number of its connections and of its events in flight."""
    rows: dict[str, dict[str, Any]] = {}
    for client in clients:
        row = rows.setdefault(
            client["client"], {"client": client["client"], "connections": 0, "in_flight": 0, "of": []}
        )
        row["connections"] += 1
        row["in_flight"] += client["in_flight"]
        row["of"] += [f"{topic} · {name}" for topic, name in client["subscriptions"]]
    return [row | {"of": ", ".join(sorted(set(row["of"])))} for _, row in sorted(rows.items())]


def _row(sign: Sign, clients: Sequence[Mapping[str, Any]] | None, newest_ms: int | None, now_ms: int) -> dict[str, str]:
    connected = sum(client["client"].split("-")[0] == sign.client for client in clients or ())
    since_s = None if newest_ms is None else (now_ms - newest_ms) / 1000
    is_fresh = since_s is not None and since_s <= sign.fresh_s
    words = []
    if connected:
        words.append(f"{connected} connection{'' if connected == 1 else 's'}")
    if since_s is not None:
        words.append(f"last event of {sign.topic} {age(since_s)} ago")
    if connected or is_fresh:
        state = "running" if is_fresh or sign.topic is None else "quiet"
    elif clients is None and sign.topic is None:
        state, words = "unknown", ["only administrators see who is connected"]
    else:
        state = "not seen" if since_s is None else "away"
    return {"program": sign.program, "state": state, "detail": ", ".join(words) or "no sign of it"}
