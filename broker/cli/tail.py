"""``tail``: a topic's events as they come.

It reads the log a few times a second instead of subscribing: nothing of it is visible to the subscriptions or counted
as a delivery, events come in the order of the log, and none is missed however slow the terminal is.
"""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

from pydantic import Field
from pydantic_settings import CliPositionalArg

from broker.cli.connection import Connection, command_config
from broker.cli.display import event_text, terminal
from broker.program import Name
from broker.sync_client import SyncClient

__all__ = ["Tail"]

POLL_S: Final = 0.1
PAGE: Final = 1000


class Tail(Connection):
    """Show a topic's events as they come; no subscription is disturbed."""

    model_config = command_config("tail")

    topic: CliPositionalArg[Name] = Field(description="the topic")
    from_: str | None = Field(
        None,
        alias="from",
        description="where to begin: earliest, latest, an offset, or a time (2026-11-27T20:00:00Z);"
        " default: latest, or earliest with --no-follow",
    )
    count: int | None = Field(None, ge=1, description="end after so many events (default: go on)")
    follow: bool = Field(True, description="wait for more at the end; else show what is there now, and end")
    is_json: bool = Field(False, alias="json", description="write the events as they are stored, a JSON line each")

    def carry_out(self) -> None:
        """Show events until the end, the count, or a signal."""
        with self.connect() as client, suppress(KeyboardInterrupt), _interrupts() as interrupts:
            self._show(client, interrupts)

    def _show(self, client: SyncClient, interrupts: list[int]) -> None:
        end = None if self.follow else self._end(client)
        at: int | str = self.from_ or ("latest" if self.follow else "earliest")
        left = self.count
        console = terminal()
        while left != 0 and not interrupts:
            lines, after = client.read_lines(self.topic, at, limit=PAGE if left is None else min(left, PAGE))
            for line in lines:
                if self.is_json:
                    sys.stdout.write(line.decode() + "\n")
                else:
                    console.print(event_text(line), soft_wrap=True)
            sys.stdout.flush()
            left = None if left is None else left - len(lines)
            if end is not None and after >= end:
                return
            if after == at:
                time.sleep(POLL_S)
            at = after

    def _end(self, client: SyncClient) -> int:
        return next((topic.next for topic in client.topics() if topic.topic == self.topic), 0)


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Note SIGINT and SIGTERM, too: an exception that comes where Python drops them, as in a finalizer, would end nothing."""
    noted: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        noted.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
