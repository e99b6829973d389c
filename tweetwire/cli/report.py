"""The base of commands that ask the broker one question and show the answer."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from tweetwire.cli.connection import CommandConnection, JsonSwitch
from tweetwire.cli.display import print_json, terminal
from tweetwire.protocol.patterns import matches

if TYPE_CHECKING:
    from rich.console import Console

    from tweetwire.client.blocking import SyncClient

__all__ = ["ReportCommand", "answer", "subscription_figures"]


class ReportCommand(CommandConnection, kw_only=True):
    """Shows the answer of `ask`, with ``--json`` as JSON and otherwise through `show`."""

    is_json: JsonSwitch = False

    def run_command(self) -> None:
        """Ask the broker, and show its answer."""
        with self.connect() as client:
            found = self.ask(client)
        if self.is_json:
            print_json(found)
        else:
            self.show(found, terminal())

    def ask(self, client: "SyncClient") -> Any:
        """Return the answer, which must be a value that JSON can hold. Raises Refusal."""
        raise NotImplementedError

    def show(self, found: Any, console: "Console") -> None:
        """Show the answer as tables and text."""
        raise NotImplementedError


def answer(reply: str, words: int) -> Any:
    """Return the value of the JSON that follows the first `words` words of a reply."""
    return msgspec.json.decode(reply.split(" ", words)[words])


def subscription_figures(stats: dict[str, Any], topic: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the figures of each subscription in an answer of ``stats``, of one topic or of all, with the two names.

    `pattern` is the pattern that a subscription belongs to, None if the subscription is for a single topic.
    """
    patterns: dict[str, list[str]] = {}
    for one in stats.get("patterns", ()):
        patterns.setdefault(one["name"], []).append(one["pattern"])
    for name, report in stats["topics"].items():
        if topic in {None, name}:
            for subscription, figures in report["subscriptions"].items():
                pattern = next((one for one in patterns.get(subscription, ()) if matches(one, name)), None)
                yield {"topic": name, "subscription": subscription, "pattern": pattern, **figures}
