"""``forget``: remove a topic's record of a producer that no longer publishes."""

from typing import TYPE_CHECKING, Annotated, Any

from tweetwire.cli.connection import TopicArgument
from tweetwire.cli.flags import argument
from tweetwire.cli.kinds import NAME
from tweetwire.cli.report import ReportCommand

if TYPE_CHECKING:
    from rich.console import Console

    from tweetwire.client.blocking import SyncClient

__all__ = ["Forget"]


class Forget(ReportCommand, kw_only=True):
    """Make a topic forget a producer's last sequence and checkpoint. Its events stay, but a repeated one is stored again."""

    examples = ("tweetwire forget orders checkout-1", "tweetwire forget orders checkout-1 --json")

    topic: TopicArgument
    producer: Annotated[str, argument(NAME, "name of the producer that publishes to the topic")]

    def ask(self, client: "SyncClient") -> Any:
        """Make the topic forget the producer."""
        client.forget(self.topic, self.producer)
        return {"topic": self.topic, "producer": self.producer}

    def show(self, found: Any, console: "Console") -> None:
        """Confirm that the topic has forgotten the producer."""
        console.print(f"{self.topic} has forgotten {self.producer}")
