"""``create``, ``retain``, ``purge`` and ``drop``: make a topic, say how long its events stay, delete events or the topic."""

from typing import TYPE_CHECKING, Annotated, Any, Final

from tweetwire.cli.confirm import YesSwitch, confirm
from tweetwire.cli.connection import TopicArgument
from tweetwire.cli.flags import Flag
from tweetwire.cli.kinds import SWITCH, Kind, choice
from tweetwire.cli.places import PLACE
from tweetwire.cli.report import ReportCommand
from tweetwire.protocol.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from tweetwire.client.blocking import SyncClient

__all__ = ["Create", "Drop", "Purge", "Retain"]


def _or_none(parse: "Callable[[str], object]") -> "Callable[[str], str]":
    """Return a function that checks a text and returns it unchanged, because the broker parses it again."""

    def read(text: str) -> str:
        if text != "none":
            parse(text)
        return text

    return read


_AGE: Final = Kind("DURATION", _or_none(parse_seconds), "12h or 7d, or none")
_SIZE: Final = Kind("BYTES", _or_none(parse_bytes), "64MiB or 10GiB, or none")


class _RetentionFlags(ReportCommand, kw_only=True):
    topic: TopicArgument
    age: Annotated[str | None, Flag(_AGE, "delete events that are older than this", default="not changed")] = None
    bytes: Annotated[
        str | None, Flag(_SIZE, "delete events that are followed by this many bytes", default="not changed")
    ] = None
    settled: Annotated[
        str | None,
        Flag(choice("yes", "no"), "delete events that every subscription has settled", default="not changed"),
    ] = None
    at_most: Annotated[
        str | None,
        Flag(
            _SIZE,
            "largest size; beyond it, events are deleted although a subscription needs them",
            default="not changed",
        ),
    ] = None

    def retention(self) -> dict[str, str]:
        """Return the given options of the command ``retain``."""
        given = {"age": self.age, "bytes": self.bytes, "settled": self.settled, "at_most": self.at_most}
        return {name: text for name, text in given.items() if text is not None}


class Create(_RetentionFlags, kw_only=True):
    """Make a topic, with a retention or without. An existing topic stays as it is."""

    examples = ("tweetwire create orders", "tweetwire create orders --age 7d --at-most 20GiB")

    def ask(self, client: "SyncClient") -> Any:
        """Make the topic."""
        return {"topic": self.topic, "is_new": client.create(self.topic, **self.retention())}

    def show(self, found: Any, console: "Console") -> None:
        """Say whether the topic is new."""
        console.print(f"made {self.topic}" if found["is_new"] else f"{self.topic} exists already")


class Retain(_RetentionFlags, kw_only=True):
    """Set how long the events of a topic stay. Without a flag, show it.

    Events that a durable subscription has not settled stay until --at-most.
    """

    examples = ("tweetwire retain orders", "tweetwire retain orders --age 7d --at-most 20GiB")

    def ask(self, client: "SyncClient") -> Any:
        """Set or ask for the retention."""
        words = " ".join(f"{name}={text}" for name, text in self.retention().items())
        reply = client.command(f"retain {self.topic} {words}")
        return {"topic": self.topic} | dict(word.split("=", 1) for word in reply.split()[3:])

    def show(self, found: Any, console: "Console") -> None:
        """Show the retention as the flags that set it."""
        flags = " ".join(f"--{name.replace('_', '-')} {text}" for name, text in found.items() if name != "topic")
        console.print(f"{self.topic}: {flags}", soft_wrap=True)


class Purge(ReportCommand, kw_only=True):
    """Delete the events of a topic, or those before a place. Subscriptions stay, and continue after the deleted events."""

    examples = ("tweetwire purge orders --before 30d", "tweetwire purge orders --yes")

    topic: TopicArgument
    before: Annotated[int | str | None, Flag(PLACE, "delete only the events before this place", default="all")] = None
    yes: YesSwitch = False

    def ask(self, client: "SyncClient") -> Any:
        """Delete the events."""
        which = "all events" if self.before is None else f"the events before {self.before}"
        confirm(f"Delete {which} of {self.topic} at {self.broker}?", yes=self.yes)
        return {"topic": self.topic, "earliest": client.purge(self.topic, self.before)}

    def show(self, found: Any, console: "Console") -> None:
        """Say where the topic begins now."""
        console.print(f"{self.topic} now begins at @{found['earliest']}")


class Drop(ReportCommand, kw_only=True):
    """Delete a topic with its events, subscriptions and documentation."""

    examples = ("tweetwire drop orders", "tweetwire drop orders --if-empty --yes")

    topic: TopicArgument
    if_empty: Annotated[bool, Flag(SWITCH, "refuse a topic that has events")] = False
    yes: YesSwitch = False

    def ask(self, client: "SyncClient") -> Any:
        """Delete the topic."""
        confirm(f"Delete {self.topic} at {self.broker} with all its events and subscriptions?", yes=self.yes)
        client.drop(self.topic, if_empty=self.if_empty)
        return {"topic": self.topic}

    def show(self, found: Any, console: "Console") -> None:
        """Confirm that the topic is gone."""
        console.print(f"deleted {found['topic']}")
