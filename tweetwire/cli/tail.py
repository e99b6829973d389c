"""``tail``: show a topic's events as they are stored.

The command reads the log several times a second and does not subscribe. So:

- It does not affect subscriptions, and no event counts as delivered.
- Events are shown in the order of the log.
- A slow terminal misses an event only if retention removes it first.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from tweetwire.cli.connection import CommandConnection, EventJsonSwitch, TopicArgument
from tweetwire.cli.display import event_writer
from tweetwire.cli.flags import OUTPUT, Flag
from tweetwire.cli.interruption import handling_signals
from tweetwire.cli.kinds import SWITCH, TEXT, whole
from tweetwire.cli.log_pages import last_lines, log_end, log_pages, offset_of
from tweetwire.cli.places import PLACE
from tweetwire.protocol.errors import StartError

if TYPE_CHECKING:
    from tweetwire.client.blocking import SyncClient

__all__ = ["Tail"]

POLL_S: Final = 0.1
PAGE: Final = 1000
LAST: Final = 10

_EXPRESSION: Final = TEXT._replace(word="EXPR")
_TEMPLATE: Final = TEXT._replace(word="TEMPLATE")


class Tail(CommandConnection, kw_only=True):
    """Show a topic's events as they are stored, without affecting subscriptions.

    Without flags it shows the last ten events, and then new ones.
    """

    examples = (
        "tweetwire tail orders --since 10m --where 'msg.user.id == 7'",
        "tweetwire tail orders -n 20 --no-follow --format '{offset} {key} {msg.total}'",
    )

    topic: TopicArgument
    last: Annotated[
        int | None,
        Flag(whole(1), "begin with the last N events that match", short="-n", default=f"{LAST}, or all with a start"),
    ] = None
    since: Annotated[int | str | None, Flag(PLACE, "show only events from this time on, or another place")] = None
    until: Annotated[int | str | None, Flag(PLACE, "show only events before this time or place, and end")] = None
    where: Annotated[str | None, Flag(_EXPRESSION, "show only events for which this is true: msg.user.id == 7")] = None
    from_: Annotated[
        int | str | None,
        Flag(PLACE, "the same as --since", name="from", default="earliest with --no-follow"),
    ] = None
    count: Annotated[int | None, Flag(whole(1), "end after this many events", default="no limit")] = None
    follow: Annotated[bool, Flag(SWITCH, "wait for new events at the end of the log; otherwise end there")] = True
    format: Annotated[
        str | None, Flag(_TEMPLATE, "how to write an event: '{offset} {key} {msg.total}'", group=OUTPUT)
    ] = None
    is_json: EventJsonSwitch = False

    def run_command(self) -> None:
        """Show events until the end of the log without ``--follow``, the count, or a signal. Raises StartError."""
        if self.since is not None and self.from_ is not None:
            raise StartError("--since and --from mean the same; pass one of them")
        if self.is_json and self.format is not None:
            raise StartError("--json and --format exclude each other; pass one of them")
        view = _View(self)
        with self.connect() as client, suppress(KeyboardInterrupt), _interrupts() as interrupts:
            at = self._show_stored(client, view)
            while at is not None and not view.is_done and not interrupts:
                lines, after = client.read_lines(self.topic, at, limit=PAGE)
                view.show(lines)
                if after == at:
                    time.sleep(POLL_S)
                at = after

    def _show_stored(self, client: "SyncClient", view: "_View") -> int | str | None:
        """Show the chosen stored events. Returns the place from which to follow, None to end."""
        is_following = self.follow and self.until is None
        start = self.since if self.since is not None else self.from_
        if is_following and self.last is None and (start is not None or self.count is not None):
            return "latest" if start is None else start
        end = log_end(client, self.topic)
        if self.until is not None:
            end = min(end, offset_of(client, self.topic, self.until))
        first = offset_of(client, self.topic, "earliest" if start is None else start)
        last = LAST if self.last is None and is_following else self.last
        if last is not None:
            view.show_matching(last_lines(client, self.topic, range(first, end), last, view.matches))
        else:
            for lines in log_pages(client, self.topic, first, end):
                view.show(lines)
                if view.is_done:
                    break
        return end if is_following else None


class _View:
    """Writes matching events to stdout, in the form that the flags choose."""

    def __init__(self, command: Tail) -> None:
        self._left = command.count
        self._where = None
        if command.where is not None:
            from tweetwire.cli.where import read_where  # noqa: PLC0415 — only this flag needs it

            self._where = read_where(command.where)
        self._write = _writer(command)

    @property
    def is_done(self) -> bool:
        """Whether the number of events that the user wants was shown."""
        return self._left == 0

    def matches(self, line: bytes) -> bool:
        """Whether the expression is true for a stored event."""
        return self._where is None or self._where(msgspec.json.decode(line))

    def show(self, lines: Sequence[bytes]) -> None:
        """Write those of the stored events that match."""
        self.show_matching([line for line in lines if self.matches(line)])

    def show_matching(self, lines: Sequence[bytes]) -> None:
        """Write stored events, up to the count."""
        lines = lines[: self._left]
        for line in lines:
            self._write(line)
        sys.stdout.flush()
        self._left = None if self._left is None else self._left - len(lines)


def _writer(command: Tail) -> Callable[[bytes], None]:
    """Return the function that writes a stored event."""
    if command.format is not None:
        from tweetwire.cli.event_format import read_format  # noqa: PLC0415 — only this flag needs it

        text_of = read_format(command.format)
        return lambda line: print(text_of(line))
    return event_writer(is_json=command.is_json)


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt on SIGINT and SIGTERM, and yield a list of the signals received.

    The list is needed because Python drops an exception that is raised in a finalizer.
    """
    noted: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        noted.append(number)
        raise KeyboardInterrupt

    with handling_signals(note):
        yield noted
