"""``topics``, ``subscriptions``, ``clients``, ``backlog`` and ``stats``: lists, and the figures of the broker."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from tweetwire.cli.connection import SubscriptionFlag, TopicArgument, TopicFlag
from tweetwire.cli.display import table
from tweetwire.cli.flags import Flag
from tweetwire.cli.kinds import whole
from tweetwire.cli.report import ReportCommand, answer, subscription_figures
from tweetwire.protocol.units import format_bytes
from tweetwire.runtime.wording import policy_text

if TYPE_CHECKING:
    from rich.console import Console

    from tweetwire.client.blocking import SyncClient

__all__ = ["Backlog", "Clients", "Stats", "Subscriptions", "Topics"]


class Topics(ReportCommand, kw_only=True):
    """List the topics with their range of offsets, size and documentation."""

    examples = ("tweetwire topics", "tweetwire topics --json")

    def ask(self, client: "SyncClient") -> Any:
        """Ask the broker for its topics."""
        return answer(client.command("topics"), 2)

    def show(self, found: Any, console: "Console") -> None:
        """Show a row for each topic."""
        columns = ("topic", "earliest", "next", "size", "subscriptions", "schema", "comments", "description")
        rows = (
            (
                *(one["topic"], f"@{one['earliest']}", f"@{one['next']}", format_bytes(one["bytes"])),
                *(one["subscriptions"], "schema" in one, len(one.get("comments", ())), one.get("description")),
            )
            for one in found
        )
        console.print(table("", columns, rows))


class Subscriptions(ReportCommand, kw_only=True):
    """List the subscriptions with their figures and policy."""

    examples = ("tweetwire subscriptions", "tweetwire subscriptions --topic orders --json")

    topic: TopicFlag = None

    def ask(self, client: "SyncClient") -> Any:
        """Ask the broker for the figures of the chosen subscriptions."""
        return list(subscription_figures(client.stats(), self.topic))

    def show(self, found: Any, console: "Console") -> None:
        """Show a row for each subscription."""
        console.print(_subscriptions(found))


class Backlog(ReportCommand, kw_only=True):
    """Show what a subscription still has to deliver, by priority, and how much each consumer has in flight."""

    examples = ("tweetwire backlog orders --as billing", "tweetwire backlog orders --as billing --json")

    topic: TopicArgument
    as_: SubscriptionFlag

    def ask(self, client: "SyncClient") -> Any:
        """Ask the broker for the backlog."""
        return answer(client.command(f"backlog {self.topic} as={self.as_}"), 3)

    def show(self, found: Any, console: "Console") -> None:
        """Show the oldest event, a row for each priority, and a row for each consumer."""
        oldest = (
            "no unsettled event" if found["oldest"] is None else f"the oldest unsettled event is @{found['oldest']}"
        )
        console.print(f"{self.as_} of {self.topic}: {oldest}")
        by_priority = sorted(((int(priority), count) for priority, count in found["by_priority"].items()), reverse=True)
        if by_priority:
            console.print(table("waiting", ("priority", "events"), by_priority))
        columns = ("client", "peer", "in_flight", "prefetch")
        rows = [[one[column] for column in columns] for one in found["consumers"]]
        console.print(
            table("consumers", [name.replace("_", " ") for name in columns], rows) if rows else "no consumers"
        )


class Clients(ReportCommand, kw_only=True):
    """List the connections of clients. A broker with users shows them to administrators."""

    examples = ("tweetwire clients", "tweetwire clients --limit 20 --json")

    limit: Annotated[int, Flag(whole(1, 100_000), "largest number of connections to list")] = 1000

    def ask(self, client: "SyncClient") -> Any:
        """Ask the broker for its clients."""
        return answer(client.command(f"clients limit={self.limit}"), 2)

    def show(self, found: Any, console: "Console") -> None:
        """Show a row for each connection."""
        rows = [
            (
                one["client"],
                one["peer"],
                one["in_flight"],
                ", ".join(f"{topic}/{name}" for topic, name in one["subscriptions"]),
            )
            for one in found
        ]
        console.print(table("", ("client", "peer", "in flight", "subscriptions"), rows))


class Stats(ReportCommand, kw_only=True):
    """Show all figures of the broker. Counters count since its start."""

    examples = ("tweetwire stats", "tweetwire stats --json")

    def ask(self, client: "SyncClient") -> Any:
        """Ask the broker for its figures."""
        return client.stats()

    def show(self, found: Any, console: "Console") -> None:
        """Show the broker, its topics and its subscriptions."""
        topics = found["topics"]
        single = {name: value for name, value in found.items() if not isinstance(value, dict | list)}
        single |= {f"handshakes {state}": count for state, count in found["handshakes"].items()}
        plain = [(name.replace("_", " "), value) for name, value in single.items()]
        console.print(table("broker", ("figure", "value"), plain))
        columns = ("topic", "published", "duplicates", "unconfirmed", "earliest", "next", "size")
        rows = (
            (name, *(one[column] for column in columns[1:4]), f"@{one['earliest']}", f"@{one['next']}", _size(one))
            for name, one in topics.items()
        )
        console.print(table("topics", columns, rows))
        console.print(_subscriptions(subscription_figures(found)))
        if found.get("patterns"):
            figures = ("pattern", "name", "durable", "topics", "consumers", "in_flight")
            patterns = ([one[figure] for figure in figures] for one in found["patterns"])
            console.print(table("pattern subscriptions", [name.replace("_", " ") for name in figures], patterns))


def _subscriptions(found: Iterable[dict[str, Any]]) -> Any:
    found = list(found)
    names = ("topic", "subscription", *(("pattern",) if any(one["pattern"] for one in found) else ()))
    figures = (*names, "durable", "consumers", "pending", "delayed", "in_flight", "dead", "settled")
    columns = (*figures, "redelivered", "policy")
    rows = ((*(one[name] for name in columns[:-1]), _policy(one)) for one in found)
    return table("subscriptions", [column.replace("_", " ") for column in columns], rows)


def _policy(subscription: dict[str, Any]) -> str:
    policy = policy_text(subscription["policy"])
    return f"paused; {policy}" if subscription["paused"] else policy


def _size(topic: dict[str, Any]) -> str:
    return format_bytes(topic["bytes"])
