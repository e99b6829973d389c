"""``mark``, ``unmark``, ``marks`` and ``confirm``: which events of a topic other systems have."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from tweetwire.cli.confirm import YesSwitch, confirm
from tweetwire.cli.connection import TopicArgument
from tweetwire.cli.display import table
from tweetwire.cli.flags import Flag, argument
from tweetwire.cli.kinds import NAME, REF, SECONDS, Kind
from tweetwire.cli.report import ReportCommand
from tweetwire.protocol.confirmation import NO_MARK
from tweetwire.protocol.words import OFFSET_MAX, whole_number

if TYPE_CHECKING:
    from rich.console import Console

    from tweetwire.client.blocking import SyncClient

__all__ = ["Confirm", "Mark", "Marks", "Unmark"]


def _offset(text: str) -> int:
    offset = whole_number(text.removeprefix("@"), OFFSET_MAX)
    if offset is None:
        raise ValueError(f"{text[:40]!r} is not an offset; write it like @1042")
    return offset


def _offsets(text: str) -> list[int]:
    return [_offset(one) for one in text.split(",")]


def _names(text: str) -> list[str]:
    return [] if text == NO_MARK else [NAME.read(name) for name in text.split(",")]


_OFFSET: Final = Kind("OFFSET", _offset, "@1042")
_OFFSETS: Final = Kind("OFFSETS", _offsets, "@7 or @7,@9")
_NAMES: Final = Kind("NAMES", _names, "kafka or kafka,redis, or none")
_MarkFlag = Annotated[str, Flag(NAME, "the mark")]


class Mark(ReportCommand, kw_only=True):
    """Report that another system has every event of a topic below an offset. A mark only grows."""

    examples = ("tweetwire mark orders @1042 --as central", "tweetwire mark orders @1042 --as central --except @7,@9")

    topic: TopicArgument
    offset: Annotated[int, argument(_OFFSET, "the other system has every event below this offset")]
    as_: _MarkFlag
    except_: Annotated[
        list[int] | None, Flag(_OFFSETS, "events below the offset that the other system does not have", default="none")
    ] = None
    checkpoint: Annotated[str | None, Flag(REF, "a word to store with the mark", default="not changed")] = None

    def ask(self, client: "SyncClient") -> Any:
        """Move the mark."""
        offset = client.mark(self.topic, self.as_, self.offset, excepted=self.except_ or (), checkpoint=self.checkpoint)
        return {"topic": self.topic, "mark": self.as_, "offset": offset}

    def show(self, found: Any, console: "Console") -> None:
        """Say where the mark is."""
        console.print(f"{self.as_} of {self.topic} is at @{found['offset']}")


class Unmark(ReportCommand, kw_only=True):
    """Forget a mark. Retention no longer keeps events for it.

    A publisher that waits for the mark waits until its time is over.
    """

    examples = ("tweetwire unmark orders --as central", "tweetwire unmark orders --as central --yes")

    topic: TopicArgument
    as_: _MarkFlag
    yes: YesSwitch = False

    def ask(self, client: "SyncClient") -> Any:
        """Forget the mark."""
        confirm(f"Forget the mark {self.as_} of {self.topic} at {self.broker}?", yes=self.yes)
        client.unmark(self.topic, self.as_)
        return {"topic": self.topic, "mark": self.as_}

    def show(self, _found: Any, console: "Console") -> None:
        """Confirm that the mark is gone."""
        console.print(f"forgot {self.as_} of {self.topic}")


class Marks(ReportCommand, kw_only=True):
    """List the marks of a topic: how far other systems have its events, and how many are left for each."""

    examples = ("tweetwire marks orders", "tweetwire marks orders --json")

    topic: TopicArgument

    def ask(self, client: "SyncClient") -> Any:
        """Ask the broker for the marks."""
        return msgspec.to_builtins(client.marks(self.topic))

    def show(self, found: Any, console: "Console") -> None:
        """Show a row for each mark."""
        if not found:
            console.print(f"{self.topic} has no marks")
            return
        rows = [
            (
                one["name"],
                f"@{one['offset']}",
                one["lag"],
                len(one["excepted"]),
                one["overtaken"],
                one["checkpoint"] or "",
                ", ".join(one["owners"]),
            )
            for one in found
        ]
        console.print(table("", ("mark", "offset", "lag", "excepted", "overtaken", "checkpoint", "owners"), rows))


class Confirm(ReportCommand, kw_only=True):
    """Set which marks must pass an event before it is confirmed as replicated. Without a flag, show the setting."""

    examples = ("tweetwire confirm orders --after central --within 2s", "tweetwire confirm orders --after none")

    topic: TopicArgument
    after: Annotated[list[str] | None, Flag(_NAMES, "the marks to wait for", default="not changed")] = None
    within: Annotated[
        float | None, Flag(SECONDS, "longest wait; then the event is confirmed as stored", default="not changed")
    ] = None

    def ask(self, client: "SyncClient") -> Any:
        """Set or ask for the setting."""
        found = client.confirm(self.topic, after=self.after, within_s=self.within)
        return {"topic": self.topic, "after": found.after, "within_s": found.within_ms / 1000}

    def show(self, found: Any, console: "Console") -> None:
        """Say what a publisher waits for."""
        if found["after"]:
            names = " and ".join(found["after"])
            console.print(f"{self.topic}: publishers wait up to {found['within_s']:g} s for {names}", soft_wrap=True)
        else:
            console.print(f"{self.topic}: publishers wait for no mark")
