"""Convert dead events to rows, and chosen rows to the commands that redrive them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dashboard.words import time_text
from tweetwire.runtime.wording import failure_text

__all__ = ["chosen", "dead_rows", "failure_rows", "key_of", "redrive_lines", "written"]

REFS_PER_LINE: Final = 200


def dead_rows(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each dead event, with the message of its last failure; the latest death first."""
    rows = []
    for one in sorted(found, key=lambda one: -(one["last_at"] or 0)):
        last = one["errors"][-1] if one["errors"] else {}
        rows.append(
            {
                "key": key_of(one),
                "topic": one["topic"],
                "offset": one["offset"],
                "event": f"{one['topic']} @{one['offset']}",
                "href": f"/topics/{one['topic']}/{one['offset']}",
                "subscription": one["subscription"],
                "tries": one["tries"],
                "died": time_text(one["last_at"]),
                "cause": last.get("cause", ""),
                "client": last.get("client", ""),
                "message": failure_text(last),
            }
        )
    return rows


def key_of(one: Mapping[str, Any]) -> str:
    """Return a key that is unique among dead events: an event may be dead for several subscriptions."""
    return f"{one['topic']}@{one['offset']}/{one['subscription']}"


def failure_rows(errors: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each failed try, the latest first."""
    return [
        {
            "number": number,
            "at": f"{time_text(error['at'])} UTC",
            "cause": error["cause"],
            "client": error["client"],
            "code": "" if error.get("code") is None else str(error["code"]),
            "message": error.get("message") or "",
            "trace": error.get("trace") or "",
        }
        for number, error in reversed(list(enumerate(errors, start=1)))
    ]


def chosen(
    rows: Iterable[Mapping[str, Any]], *, topic: str | None, subscription: str | None, words: str
) -> list[dict[str, Any]]:
    """Return the rows of a topic and a subscription (None for all) whose visible text contains `words`."""
    wanted = words.casefold().strip()
    return [
        dict(row)
        for row in rows
        if topic in {None, row["topic"]}
        and subscription in {None, row["subscription"]}
        and (not wanted or any(wanted in str(value).casefold() for value in row.values()))
    ]


def redrive_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the commands that redrive these dead events, each to the subscription that gave up on it."""
    offsets: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        offsets.setdefault((row["topic"], row["subscription"]), []).append(row["offset"])
    return [
        f"redrive {topic} as={name} {' '.join(f'@{offset}' for offset in sorted(some)[at : at + REFS_PER_LINE])}"
        for (topic, name), some in sorted(offsets.items())
        for at in range(0, len(some), REFS_PER_LINE)
    ]


def written(found: Iterable[Mapping[str, Any]], rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the broker's own answers for `rows`, as one JSON object per line."""
    keys = {row["key"] for row in rows}
    lines = [one for one in found if key_of(one) in keys]
    return b"".join(msgspec.json.encode(one) + b"\n" for one in lines)
