"""The prefetch that the consumers of one connection to one pattern subscription share.

Always true:

- `held` is how many events the consumers have in flight together;
- a consumer whose topic may have waiting events is in `queue`, or has no room until events leave its outbox or are settled.

The consumers in the queue have their turns in order, so that one busy topic does not keep the others from being served.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["Share"]

C = TypeVar("C")


class Share(Generic[C]):
    """One connection's part of a pattern subscription: its consumers by topic, and how many events they may have together.

    `freed` collects the shares that have room again while consumers wait. A share is closed, and its consumers get no
    events, until `open`.
    """

    __slots__ = ("freed", "held", "is_durable", "key", "members", "prefetch", "queue", "sending", "unsent")

    def __init__(self, key: tuple[str, str], freed: "dict[Share[C], None]", *, is_durable: bool) -> None:
        self.key = key
        self.is_durable = is_durable
        self.prefetch = 0
        self.held = 0
        self.members: dict[str, C] = {}
        # A dict keeps the order of insertion, and holds each consumer once.
        self.queue: dict[C, None] = {}
        self.freed = freed
        # The consumers with events in the outbox, and those whose events are being written to the socket
        self.unsent: list[C] = []
        self.sending: list[C] = []

    @property
    def room(self) -> int:
        """How many more events may be in flight in total."""
        return self.prefetch - self.held

    def open(self, prefetch: int) -> None:
        """Let the consumers have `prefetch` events in flight together."""
        self.prefetch = prefetch
        self.freed[self] = None

    def close(self) -> None:
        """Let the consumers get no more events, and forget those with events on their way."""
        self.prefetch = 0
        self.queue.clear()
        self.unsent, self.sending = [], []
        self.freed.pop(self, None)

    def want(self, consumer: C) -> None:
        """Note that a consumer may have events waiting. It is served after those that already wait."""
        self.queue[consumer] = None
        self.freed[self] = None

    def release(self, count: int) -> None:
        """Note that `count` events are no longer in flight."""
        self.held -= count
        if self.queue:
            self.freed[self] = None

    def depart(self) -> list[C]:
        """Return the consumers whose events are written to the socket next."""
        self.sending, self.unsent = self.unsent, []
        return self.sending

    def take_sent(self) -> Iterator[C]:
        """Remove and yield the consumers whose events have been written to the socket."""
        sent, self.sending = self.sending, []
        return iter(sent)
