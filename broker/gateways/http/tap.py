"""An outbox that lets events through only while a client waits for them."""

from broker.core.outbox import Outbox

__all__ = ["Tap"]


class Tap(Outbox):
    """While it is closed, the session looks like a connection that does not read: it gets replies, and no events."""

    __slots__ = ("is_open",)

    def __init__(self) -> None:
        super().__init__()
        self.is_open = False

    @property
    def has_room(self) -> bool:
        """Whether events may be added."""
        return self.is_open and super().has_room

    def open(self) -> None:
        """Let events through. `Broker.sent` then delivers those that wait."""
        self.is_open = self.was_full = True

    def close(self) -> None:
        """Let no more events through."""
        self.is_open = False
