"""``cluster``: the brokers that share a central engine with this one, as its bridge sees them."""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tweetwire.cli.display import printable, table
from tweetwire.cli.log_pages import log_pages
from tweetwire.cli.report import ReportCommand
from tweetwire.cluster import CLUSTER_VIEW, CentreView, newest_views, standing_of
from tweetwire.protocol.events import decode_stored
from tweetwire.runtime.wording import age_text

if TYPE_CHECKING:
    from rich.console import Console

    from tweetwire.client.blocking import SyncClient

__all__ = ["Cluster"]

LOOKED_AT: Final = 200
"""How many events of the topic are read. A bridge publishes one for each engine in each turn."""
_EMPTY: Final = "no bridge of this broker has seen a central engine in the last hour: tweetwire bridge --help"


class Cluster(ReportCommand, kw_only=True):
    """Show the brokers that share a central engine with this broker: their topics, and how many events are not there yet."""

    examples = ("tweetwire cluster", "tweetwire cluster --json")

    def ask(self, client: "SyncClient") -> Any:
        """Read the newest views that the bridges of the broker have published."""
        stats = client.stats()
        figures = stats["topics"].get(CLUSTER_VIEW)
        if figures is None:
            return {"broker": stats["identity"], "centres": []}
        start = max(figures["earliest"], figures["next"] - LOOKED_AT)
        pages = log_pages(client, CLUSTER_VIEW, start, figures["next"])
        views = newest_views(decode_stored(line) for page in pages for line in page)
        return {
            "broker": stats["identity"],
            "centres": [_centre(view, (stats.get("now_ms", at_ms) - at_ms) / 1000) for view, at_ms in views.values()],
        }

    def show(self, found: Any, console: "Console") -> None:
        """Show the brokers of each engine, and the topics that they carry to it."""
        if not found["centres"]:
            console.print(_EMPTY, soft_wrap=True)
        for centre in found["centres"]:
            console.print(printable(f"{centre['centre']}: {_state(centre)}"), soft_wrap=True)
            brokers = (
                (
                    *(one["broker"], _with_here(one, found["broker"]), one["state"]),
                    *(
                        f"{age_text(one['age_s'])} ago",
                        len(one["topics"]) + one["left_out"],
                        one["lag"],
                        one["version"],
                    ),
                )
                for one in centre["brokers"]
            )
            columns = ("broker", "address", "state", "last heartbeat", "topics", "lag", "version")
            console.print(table("", columns, brokers))
            topics = (
                (one["address"], topic["topic"], f"@{topic['earliest']}", f"@{topic['next']}", mark, lag)
                for one in centre["brokers"]
                for topic in one["topics"]
                for mark, lag in (topic["lag"] or {"": None}).items()
            )
            console.print(table("", ("address", "topic", "earliest", "next", "mark", "lag"), topics))


def _centre(view: CentreView, since_s: float) -> dict[str, Any]:
    """Return a view for people and programs. `since_s` is the age of its event, by the broker's clock."""
    since_s = max(0.0, since_s)
    brokers = []
    for one in view.brokers:
        heartbeat, age_s = one.heartbeat, one.age_s + since_s
        state = standing_of(heartbeat, age_s)
        brokers.append(
            {**msgspec.to_builtins(heartbeat), "age_s": round(age_s, 1), "state": state, "lag": heartbeat.lag()}
        )
    asked_s = None if view.asked_s is None else round(view.asked_s + since_s, 1)
    plain = {"centre": view.centre, "trouble": view.trouble, "asked_s": asked_s, "seen_s": round(since_s, 1)}
    return {**plain, "unreadable": view.unreadable, "left_out": view.left_out, "brokers": brokers}


def _state(centre: dict[str, Any]) -> str:
    if centre["trouble"]:
        since = "never" if centre["asked_s"] is None else f"{age_text(centre['asked_s'])} ago"
        return f"does not answer ({centre['trouble']}); it last answered {since}"
    return f"asked {age_text(centre['seen_s'])} ago"


def _with_here(broker: dict[str, Any], identity: str) -> str:
    return f"{broker['address']} (this broker)" if broker["broker"] == identity else str(broker["address"])
