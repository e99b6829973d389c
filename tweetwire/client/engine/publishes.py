"""Publishes that wait for confirmations: single ones, and runs of one publisher. A confirmation may be for many publishes."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from tweetwire.client.engine.commands import Command
from tweetwire.protocol import requests
from tweetwire.protocol.errors import BrokerError, Refusal
from tweetwire.protocol.events import Event, encode_event, encode_events
from tweetwire.protocol.replies import Receipt

__all__ = ["PublishCommand", "PublishRun", "PublishWindow", "publish_command"]

_SEQUENCE: Final = b',"sequence":'
"""Text in the line of an event with a sequence.

An event whose message contains this text also counts as one with a sequence.
"""


class PublishWindow:
    """The unconfirmed events of one publisher. Each client derives its publisher from this class.

    Always true: `unconfirmed` is the number of given events without a confirmation or a refusal.
    """

    def __init__(self, topic: str, options: str = "") -> None:
        self.topic = topic
        self.unconfirmed = 0
        # Whether an event with a sequence was refused, and not all given events have been answered since.
        self.is_out_of_sequence = False
        self._prefix = requests.publish_prefix(topic, options)
        self._refusal: Refusal | None = None
        self._failure: BrokerError | None = None

    def confirm(self, receipt: Receipt) -> None:
        """Take a confirmation. Called by the engine."""
        self.unconfirmed -= receipt.count
        self._note_answered()
        self._confirmed(receipt)
        self._changed()

    def refuse(self, refusal: Refusal, *, is_numbered: bool = False) -> None:
        """Take the refusal of an event. `is_numbered` says whether the event has a `sequence`. Called by the engine."""
        self.unconfirmed -= 1
        self.is_out_of_sequence |= is_numbered
        self._note_answered()
        self._refusal = self._refusal or refusal
        self._changed()

    def fail(self, error: BrokerError) -> None:
        """Note that no more confirmations will come. Called by the engine."""
        self._failure = error
        self._changed()

    def _given_lines(self, events: Sequence[Event]) -> list[bytes]:
        """Count events as given, and return their lines. Raises ValueError if one cannot be written as JSON."""
        prefix = self._prefix
        bodies = [encode_event(events[0])] if len(events) == 1 else encode_events(events)
        lines = [prefix + body + b"\n" for body in bodies]
        self.unconfirmed += len(lines)
        return lines

    def _raise_failure(self) -> None:
        """Raise the error that prevents confirmations, if there is one, else the first refusal that was not raised yet."""
        if self._failure is not None:
            raise self._failure
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise refusal

    def _note_answered(self) -> None:
        self.is_out_of_sequence &= self.unconfirmed > 0

    def _confirmed(self, receipt: Receipt) -> None:
        """Take a receipt (overridden by each client)."""

    def _changed(self) -> None:
        """Note that the window has room, or that there is an error to raise (overridden by each client)."""


class PublishCommand(Command):
    """One publish, whose caller waits for its confirmation."""

    receipt: Receipt
    count = 1

    def __init__(self, line: bytes, topic: str) -> None:
        super().__init__(line)
        self.topic = topic

    def confirm(self, receipt: Receipt) -> tuple[Receipt | None, bool]:
        """Take a part of a confirmation. Return the rest of it, and whether the command is done."""
        self.receipt, left = receipt.split(1)
        self.answer(b"")
        return left, True


def publish_command(topic: str, event: Event, options: str) -> PublishCommand:
    """Return the command that publishes an event. `options` come from `mark_requests.confirmation_options`."""
    return PublishCommand(requests.publish_line(requests.publish_prefix(topic, options), encode_event(event)), topic)


class PublishRun(Command):
    """Consecutive publishes of one publisher. Confirmations remove them in order, the oldest first."""

    def __init__(self, window: PublishWindow) -> None:
        super().__init__(b"")
        self.window = window
        self.topic = window.topic
        self.unconfirmed: deque[bytes] = deque()

    @property
    def count(self) -> int:
        """The number of unconfirmed publishes in this run."""
        return len(self.unconfirmed)

    def resend(self) -> bytes:
        if self.window.is_out_of_sequence:
            self._refuse_numbered()
        return b"".join(self.unconfirmed)

    def fits(self, reply: bytes) -> bool:
        return False

    def confirm(self, receipt: Receipt) -> tuple[Receipt | None, bool]:
        """Take a part of a confirmation. Return the rest of it, and whether the command is done."""
        mine, left = receipt.split(len(self.unconfirmed))
        for _ in range(mine.count):
            self.unconfirmed.popleft()
        self.window.confirm(mine)
        return left, not self.unconfirmed

    def refuse(self, refusal: Refusal) -> bool:
        line = self.unconfirmed.popleft()
        self.window.refuse(refusal, is_numbered=_SEQUENCE in line)
        return not self.unconfirmed

    def fail(self, error: BrokerError) -> None:
        self.window.fail(error)
        super().fail(error)

    def _refuse_numbered(self) -> None:
        """Refuse the events with a sequence that follow a refused one: on a new connection the broker may accept them."""
        lines, self.unconfirmed = self.unconfirmed, deque()
        for line in lines:
            if _SEQUENCE in line:
                refusal = Refusal(
                    "out_of_sequence",
                    "an earlier event of its producer was refused; publish that event again, or give it up: "
                    "skip <topic> <producer> <sequence>",
                )
                self.window.refuse(refusal, is_numbered=True)
            else:
                self.unconfirmed.append(line)
