"""``chain``: what caused an event, and what it has caused, as a tree across topics."""

from typing import Any

from pydantic import Field
from pydantic_settings import CliPositionalArg
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from broker.cli.connection import command_config
from broker.cli.display import printable, time_text
from broker.cli.failures import Ref
from broker.cli.report import Report, answer
from broker.program import Name
from broker.sync_client import SyncClient

__all__ = ["Chain"]


class Chain(Report):
    """Show the tree of what caused what that an event is part of."""

    model_config = command_config("chain")

    topic: CliPositionalArg[Name] = Field(description="topic of the event")
    ref: CliPositionalArg[Ref] = Field(description="id of one of the newest events, or the offset of any (@1042)")
    limit: int = Field(1000, ge=1, le=100_000, description="most that are shown (events)")

    def ask(self, client: SyncClient) -> Any:
        """Ask for the tree."""
        return answer(client.command(f"chain {self.topic} {self.ref} limit={self.limit}"), 3)

    def show(self, found: Any, console: Console) -> None:
        """Draw it, the event that was asked for in bold."""
        missing = found["unknown_parent"]
        root = Tree(
            Text(f"{printable(missing)} (not among the newest events)", "dim") if missing else "", hide_root=not missing
        )
        open_ = [root]
        for event in found["events"]:
            del open_[event["depth"] + 1 :]
            open_.append(open_[-1].add(_label(event, is_asked=_is_asked(event, found))))
        console.print(root)
        if not found["is_whole"]:
            console.print(f"there is more of it than {self.limit:,} events: --limit")


def _is_asked(event: dict[str, Any], found: dict[str, Any]) -> bool:
    return all(event[name] == found["asked"][name] for name in ("topic", "offset"))


def _label(event: dict[str, Any], *, is_asked: bool) -> Text:
    text = Text().append(printable(event["id"]), "bold" if is_asked else "")
    text.append(f" {event['topic']} @{event['offset']}", "cyan")
    return text.append(f" {time_text(event['timestamp'])}", "dim").append(" <" if is_asked else "", "bold")
