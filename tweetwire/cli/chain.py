"""``chain``: the causes and the consequences of an event, as a tree across topics."""

from typing import TYPE_CHECKING, Annotated, Any

from tweetwire.cli.connection import TopicArgument
from tweetwire.cli.display import printable
from tweetwire.cli.failures import RefArgument
from tweetwire.cli.flags import Flag
from tweetwire.cli.kinds import whole
from tweetwire.cli.report import ReportCommand, answer
from tweetwire.runtime.wording import iso_time

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from tweetwire.client.blocking import SyncClient

__all__ = ["Chain"]


class Chain(ReportCommand, kw_only=True):
    """Show the tree of causes and consequences that an event is part of."""

    examples = ("tweetwire chain orders o-1", "tweetwire chain orders @1042 --limit 50")

    topic: TopicArgument
    ref: RefArgument
    limit: Annotated[int, Flag(whole(1, 100_000), "largest number of events to show")] = 1000

    def ask(self, client: "SyncClient") -> Any:
        """Ask the broker for the tree."""
        return answer(client.command(f"chain {self.topic} {self.ref} limit={self.limit}"), 3)

    def show(self, found: Any, console: "Console") -> None:
        """Draw the tree, with the given event in bold."""
        from rich.text import Text  # noqa: PLC0415 — see the module `display`
        from rich.tree import Tree  # noqa: PLC0415

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
            console.print(f"the tree has more than {self.limit:,} events; show more with --limit")


def _is_asked(event: dict[str, Any], found: dict[str, Any]) -> bool:
    return all(event[name] == found["asked"][name] for name in ("topic", "offset"))


def _label(event: dict[str, Any], *, is_asked: bool) -> "Text":
    from rich.text import Text  # noqa: PLC0415 — see the module `display`

    text = Text().append(printable(event["id"]), "bold" if is_asked else "")
    text.append(f" {event['topic']} @{event['offset']}", "cyan")
    return text.append(f" {iso_time(event['timestamp'])}", "dim").append(" <" if is_asked else "", "bold")
