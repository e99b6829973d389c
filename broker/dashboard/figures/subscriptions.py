"""Subscriptions as rows, and one of them in full."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from broker.dashboard.history import Counter, History
from broker.dashboard.words import age, rate, time_text
from broker.units import format_seconds

__all__ = ["policy_text", "standing_rows", "standing_text", "subscription_rows"]


def subscription_rows(stats: Mapping[str, Any], history: History) -> list[dict[str, Any]]:
    """Return a row for each subscription, those with the most before them first."""
    rows = [
        {
            "key": f"{topic}/{name}",
            "href": f"/subscriptions/{topic}/{name}",
            "topic": topic,
            "subscription": name,
            "durable": "yes" if one["durable"] else "no",
            **{
                member: one[member]
                for member in ("consumers", "pending", "delayed", "in_flight", "dead", "redelivered")
            },
            "settled": one["settled"],
            "rate": rate(history.rate_now(_settled(topic, name))),
        }
        for topic, report in stats["topics"].items()
        for name, one in report["subscriptions"].items()
    ]
    return sorted(rows, key=lambda row: (-row["pending"] - row["in_flight"], row["key"]))


def policy_text(policy: Mapping[str, Any]) -> str:
    """Write a policy as the options of ``sub`` that make it."""
    times = {name: format_seconds(policy[f"{name}_ms"] / 1000) for name in ("timeout", "backoff", "max_wait")}
    strikes = ",".join(policy["strikes"]) or "none"
    return (
        f"timeout={times['timeout']} tries={policy['tries']} strikes={strikes}"
        f" backoff={times['backoff']} max_wait={times['max_wait']}"
    )


def standing_rows(explained: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each answer to ``explain``: where the event stands for which subscription, and what failed."""
    return [
        {
            "key": f"{found['subscription']}@{found['offset']}",
            "event": f"@{found['offset']}",
            "href": f"/topics/{found['topic']}/{found['offset']}",
            "subscription": found["subscription"],
            "state": found["state"].replace("_", " "),
            "why": standing_text(found),
            "tries": f"{found['failed_tries']} of {found['tries']}",
            "last": _last_words(found["errors"]),
        }
        for found in explained
    ]


def standing_text(found: Mapping[str, Any]) -> str:
    """Say where an event stands."""
    return _STATES[found["state"]](found)


def _last_words(errors: Iterable[Mapping[str, Any]]) -> str:
    last = next(iter(reversed(list(errors))), None)
    return "" if last is None else ": ".join(filter(None, (last["cause"], last.get("message"))))


def _settled(topic: str, name: str) -> Counter:
    return lambda stats: stats["topics"].get(topic, {}).get("subscriptions", {}).get(name, {}).get("settled")


_STATES: Final[dict[str, Callable[[Mapping[str, Any]], str]]] = {
    "settled": lambda _: "settled",
    "in_flight": lambda found: f"in flight with {found['client']} ({found['peer']})",
    "waiting": lambda found: f"waits behind {found['behind']:,} others: {found['because']}",
    "delayed": lambda found: (
        f"waits until {time_text(found['until'])} ({age(found['for_ms'] / 1000)}), its pause after a failed try"
    ),
    "dead": lambda found: "dead" + ("" if found["dead_letter"] is None else f": dead_letters @{found['dead_letter']}"),
    "before_start": lambda _: "older than the subscription, which began behind it",
    "behind_retention": lambda found: f"removed by retention: the log begins at @{found['earliest']}",
}
