"""``topics``, ``subscriptions`` and ``stats``: what there is and how it is going."""

from collections.abc import Iterable
from typing import Any

from pydantic import Field
from rich.console import Console

from broker.cli.connection import command_config
from broker.cli.display import table
from broker.cli.report import Report, answer
from broker.program import Name
from broker.sync_client import SyncClient
from broker.units import format_bytes, format_seconds

__all__ = ["Stats", "Subscriptions", "Topics"]


class Topics(Report):
    """List the topics: what of each can be read, and how much it is."""

    model_config = command_config("topics")

    def ask(self, client: SyncClient) -> Any:
        """Ask for the topics."""
        return answer(client.command("topics"), 2)

    def show(self, found: Any, console: Console) -> None:
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


class Subscriptions(Report):
    """List the subscriptions: where each stands, and its policy."""

    model_config = command_config("subscriptions")

    topic: Name | None = Field(None, description="only those of this topic (default: all)")

    def ask(self, client: SyncClient) -> Any:
        """Ask for the figures of all subscriptions."""
        return [
            {"topic": topic, "subscription": name, **figures}
            for topic, report in client.stats()["topics"].items()
            if self.topic in {None, topic}
            for name, figures in report["subscriptions"].items()
        ]

    def show(self, found: Any, console: Console) -> None:
        """Show a row for each subscription."""
        console.print(_subscriptions(found))


class Stats(Report):
    """Show every figure of the broker; the counters are those since its start."""

    model_config = command_config("stats")

    def ask(self, client: SyncClient) -> Any:
        """Ask for the figures."""
        return client.stats()

    def show(self, found: Any, console: Console) -> None:
        """Show the broker, its topics and its subscriptions."""
        topics = found["topics"]
        single = {name: value for name, value in found.items() if not isinstance(value, dict)}
        single |= {f"handshakes {state}": count for state, count in found["handshakes"].items()}
        plain = [(name.replace("_", " "), value) for name, value in single.items()]
        console.print(table("broker", ("figure", "value"), plain))
        columns = ("topic", "published", "duplicates", "unconfirmed", "earliest", "next", "size")
        rows = (
            (name, *(one[column] for column in columns[1:4]), f"@{one['earliest']}", f"@{one['next']}", _size(one))
            for name, one in topics.items()
        )
        console.print(table("topics", columns, rows))
        console.print(
            _subscriptions(
                {"topic": topic, "subscription": name, **figures}
                for topic, report in topics.items()
                for name, figures in report["subscriptions"].items()
            )
        )


def _subscriptions(found: Iterable[dict[str, Any]]) -> Any:
    figures = ("topic", "subscription", "durable", "consumers", "pending", "delayed", "in_flight", "dead", "settled")
    columns = (*figures, "redelivered", "policy")
    rows = ((*(one[name] for name in columns[:-1]), _policy(one["policy"])) for one in found)
    return table("subscriptions", [column.replace("_", " ") for column in columns], rows)


def _policy(policy: dict[str, Any]) -> str:
    """Write a policy as the options of ``sub`` that make it."""
    durations = {name: format_seconds(policy[f"{name}_ms"] / 1000) for name in ("timeout", "backoff", "max_wait")}
    strikes = ",".join(policy["strikes"]) or "none"
    return (
        f"timeout={durations['timeout']} tries={policy['tries']} strikes={strikes}"
        f" backoff={durations['backoff']} max_wait={durations['max_wait']}"
    )


def _size(topic: dict[str, Any]) -> str:
    return format_bytes(topic["bytes"])
