"""``top``: the rates and lags of a broker, updated live on a terminal."""

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Final

from tweetwire.cli.connection import CommandConnection
from tweetwire.cli.display import terminal
from tweetwire.cli.flags import OUTPUT, Flag
from tweetwire.cli.kinds import SECONDS, SWITCH, Kind
from tweetwire.cli.top_picture import picture, rows_between

__all__ = ["Top"]

_QUIT: Final = b"qQ\x03\x04"
"""The keys that end the command: q, Ctrl-C and Ctrl-D."""


def _interval(text: str) -> float:
    seconds = SECONDS.read(text)
    if not 0.1 <= seconds <= 3600:
        raise ValueError(f"{text!r} is not between 100ms and 1h")
    return float(seconds)


_INTERVAL: Final = Kind("DURATION", _interval, SECONDS.examples, SECONDS.write)


class Top(CommandConnection, kw_only=True):
    """Show the topics by their rate and the subscriptions by their lag, live. The key q ends it.

    The lag of a subscription is the number of events that it has not settled: waiting, delayed or in flight.
    """

    examples = ("tweetwire top", "tweetwire top --once --interval 5s")

    interval: Annotated[float, Flag(_INTERVAL, "time between two updates, over which rates are measured")] = 1.0
    once: Annotated[
        bool, Flag(SWITCH, "print the figures once and end, as without a terminal", group=OUTPUT, has_variable=False)
    ] = False

    def run_command(self) -> None:
        """Show the figures once, or update them until a key ends the command."""
        if self.once or not (sys.stdout.isatty() and sys.stdin.isatty()):
            self._print_once()
        else:
            with suppress(KeyboardInterrupt):
                self._show_live()

    def _print_once(self) -> None:
        with self.connect() as client:
            before, began = client.stats(), time.monotonic()
            time.sleep(self.interval)
            after = client.stats()
        terminal().print(picture(self.broker, rows_between(before, after, time.monotonic() - began)))

    def _show_live(self) -> None:
        from rich.live import Live  # noqa: PLC0415 — see the module `display`

        console = terminal()
        with (
            self.connect() as client,
            Live(console=console, screen=True, auto_refresh=False) as live,
            _single_keys() as terminal_in,
        ):
            before = after = client.stats()
            at, began = time.monotonic(), time.monotonic() - self.interval
            while True:
                title = f"{self.broker} (q ends)"
                rows = rows_between(before, after, at - began)
                live.update(picture(title, rows, console.height), refresh=True)
                if _is_quit(terminal_in, self.interval):
                    return
                before, began = after, at
                after, at = client.stats(), time.monotonic()


@contextmanager
def _single_keys() -> Iterator[int]:
    """Make the terminal pass on each key immediately without showing it. Yields the file descriptor to read the keys from."""
    import termios  # noqa: PLC0415 — only a terminal needs it
    import tty  # noqa: PLC0415

    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    try:
        tty.setcbreak(handle)
        yield handle
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


def _is_quit(handle: int, within_s: float) -> bool:
    """Wait for `within_s` seconds. Returns True as soon as the user presses a key that ends the command."""
    until = time.monotonic() + within_s
    while (left := until - time.monotonic()) > 0:
        if select.select([handle], [], [], left)[0]:
            keys = os.read(handle, 64)
            if not keys or any(key in _QUIT for key in keys):
                return True
    return False
