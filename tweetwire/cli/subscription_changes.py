"""``seek``, ``pause``, ``resume`` and ``unsub``: change a durable subscription, whether it has consumers or not."""

from typing import TYPE_CHECKING, Annotated, Any

from tweetwire.cli.confirm import YesSwitch, confirm
from tweetwire.cli.connection import SubscriptionFlag, TopicArgument, TopicsArgument
from tweetwire.cli.flags import Flag
from tweetwire.cli.kinds import SWITCH
from tweetwire.cli.places import PLACE
from tweetwire.cli.report import ReportCommand
from tweetwire.protocol.errors import StartError

if TYPE_CHECKING:
    from rich.console import Console

    from tweetwire.client.blocking import SyncClient

__all__ = ["Pause", "Resume", "Seek", "Unsub"]


class Seek(ReportCommand, kw_only=True):
    """Continue a subscription at another place.

    Every event from there on is delivered again, and every event before it counts as settled.
    """

    examples = ("tweetwire seek orders --as billing --to yesterday", "tweetwire seek orders --as billing --to @1042")

    topic: TopicArgument
    as_: SubscriptionFlag
    to: Annotated[int | str, Flag(PLACE, "where to continue")]

    def ask(self, client: "SyncClient") -> Any:
        """Move the subscription."""
        return {"topic": self.topic, "subscription": self.as_, "offset": client.seek(self.topic, self.as_, self.to)}

    def show(self, found: Any, console: "Console") -> None:
        """Say where the subscription continues."""
        console.print(f"{self.as_} continues at @{found['offset']} of {self.topic}")


class Pause(ReportCommand, kw_only=True):
    """Deliver no more events to a subscription until it is resumed. Events in flight can still be settled."""

    examples = ("tweetwire pause orders --as billing", "tweetwire pause orders --as billing --json")

    topic: TopicArgument
    as_: SubscriptionFlag

    def ask(self, client: "SyncClient") -> Any:
        """Pause the subscription."""
        client.pause(self.topic, self.as_)
        return {"topic": self.topic, "subscription": self.as_}

    def show(self, _found: Any, console: "Console") -> None:
        """Say how to resume the subscription."""
        console.print(f"{self.as_} is paused; to resume it: tweetwire resume {self.topic} --as {self.as_}")


class Resume(ReportCommand, kw_only=True):
    """Deliver events to a paused subscription again."""

    examples = ("tweetwire resume orders --as billing", "tweetwire resume orders --as billing --json")

    topic: TopicArgument
    as_: SubscriptionFlag

    def ask(self, client: "SyncClient") -> Any:
        """Resume the subscription."""
        client.resume(self.topic, self.as_)
        return {"topic": self.topic, "subscription": self.as_}

    def show(self, _found: Any, console: "Console") -> None:
        """Confirm it."""
        console.print(f"{self.as_} receives events of {self.topic} again")


class Unsub(ReportCommand, kw_only=True):
    """End a subscription for all its consumers, and forget its pending events.

    The subscription of a pattern ends on all its topics. A consumer that only leaves needs no command: its subscription
    stays, and keeps its events until it comes back.
    """

    examples = ("tweetwire unsub orders --as billing --end", "tweetwire unsub 'orders.*' --as billing --end --yes")

    topic: TopicsArgument
    as_: SubscriptionFlag
    end: Annotated[bool, Flag(SWITCH, "end it for all its consumers", has_variable=False)] = False
    yes: YesSwitch = False

    def ask(self, client: "SyncClient") -> Any:
        """End the subscription."""
        if not self.end:
            raise StartError(f"only a connected consumer can leave {self.as_}; end it for all consumers with --end")
        confirm(f"End {self.as_} of {self.topic} at {self.broker} and forget its pending events?", yes=self.yes)
        client.end(self.topic, self.as_)
        return {"topic": self.topic, "subscription": self.as_}

    def show(self, _found: Any, console: "Console") -> None:
        """Confirm that the subscription has ended."""
        console.print(f"{self.as_} of {self.topic} has ended")
