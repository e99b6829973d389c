"""Turn answers of the broker into text: a policy, the state of an event, and the reason of a failed try."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from tweetwire.protocol.units import format_seconds

__all__ = ["age_text", "failure_text", "iso_time", "policy_text", "standing_text"]

_UNITS: Final = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"))


def age_text(seconds: float) -> str:
    """Return an age in its largest unit: ``12 s``, ``3 min``, ``2 d``."""
    for length, unit in _UNITS:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def policy_text(policy: Mapping[str, Any]) -> str:
    """Return a policy as the options of ``sub`` that set it."""
    times = {name: format_seconds(policy[f"{name}_ms"] / 1000) for name in ("timeout", "backoff", "max_wait")}
    strikes = ",".join(policy["strikes"]) or "none"
    order = " ordered=key" if policy.get("ordered") == "key" else ""
    return (
        f"timeout={times['timeout']} tries={policy['tries']} strikes={strikes}"
        f" backoff={times['backoff']} max_wait={times['max_wait']}{order}"
    )


def standing_text(found: Mapping[str, Any]) -> str:
    """Return the state of an event in a subscription as text, from an answer to ``explain``."""
    return _STANDINGS[found["state"]](found)


def failure_text(failure: Mapping[str, Any]) -> str:
    """Return the code and the message that the consumer gave for a failed try, or "" if it gave neither."""
    return " ".join(str(failure[name]) for name in ("code", "message") if failure.get(name) is not None)


def iso_time(time_ms: int) -> str:
    """Return milliseconds since 1970 UTC as ``2026-11-27T20:00:00.123Z``. The broker also accepts this form."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _client_text(found: Mapping[str, Any]) -> str:
    return "" if found["client"] is None else f" with {found['client']} ({found['peer']})"


def _letter_text(found: Mapping[str, Any]) -> str:
    return "" if found["dead_letter"] is None else f", its letter is dead_letters @{found['dead_letter']}"


_STANDINGS: Final[dict[str, Callable[[Mapping[str, Any]], str]]] = {
    "settled": lambda _: "settled",
    "in_flight": lambda found: f"in flight{_client_text(found)}",
    "waiting": lambda found: f"waits behind {found['behind']:,} others: {found['because']}",
    "delayed": lambda found: (
        f"waits {format_seconds(round(found['for_ms'] / 1000))} more after a failed try, until {iso_time(found['until'])}"
    ),
    "dead": lambda found: f"dead{_letter_text(found)}",
    "before_start": lambda _: "older than the subscription, which began after it",
    "behind_retention": lambda found: f"removed by retention or a purge; the log begins at @{found['earliest']}",
}
