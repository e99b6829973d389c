"""Convert subscriptions to rows, and one of them to a full description."""

from collections.abc import Iterable, Mapping
from typing import Any

from dashboard.history import Counter, History
from dashboard.words import rate
from tweetwire.runtime.wording import failure_text, standing_text

__all__ = ["standing_rows", "subscription_rows"]


def subscription_rows(stats: Mapping[str, Any], history: History) -> list[dict[str, Any]]:
    """Return a row for each subscription, those with the largest backlog first."""
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


def standing_rows(explained: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each answer to ``explain``: the event's state for a subscription, and its failures."""
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


def _last_words(errors: Iterable[Mapping[str, Any]]) -> str:
    last = next(iter(reversed(list(errors))), None)
    return "" if last is None else ": ".join(filter(None, (last["cause"], failure_text(last))))


def _settled(topic: str, name: str) -> Counter:
    return lambda stats: stats["topics"].get(topic, {}).get("subscriptions", {}).get(name, {}).get("settled")
