"""Commands and the places where their replies arrive: who is told, and what of a command is sent again.

A command is done when its reply has come, be it a refusal. What nobody would make use of on a new connection is not sent
again: an ack would be stale there, since what was in flight is given again.
"""

from collections import deque
from typing import TYPE_CHECKING

import anyio
import structlog

from broker.errors import Refusal
from broker.protocol import replies
from broker.protocol.replies import Receipt

if TYPE_CHECKING:
    from broker.client.publisher import Publisher
    from broker.client.subscription import Subscription

__all__ = [
    "AckCommand",
    "Command",
    "HelloCommand",
    "PingCommand",
    "PublishCommand",
    "PublishRun",
    "ResumeCommand",
    "SubscribeCommand",
]

logger = structlog.stdlib.get_logger()


class Command:
    """One command and the place where its reply arrives."""

    def __init__(self, line: bytes) -> None:
        self.line = line
        self.reply: bytes | None = None
        self.lines: list[bytes] = []
        self.refusal: Refusal | None = None
        self._is_answered = anyio.Event()

    def resend(self) -> bytes:
        """What is sent on a new connection; it may be nothing, if nobody waits any more."""
        return self.line

    def answer(self, reply: bytes, lines: list[bytes]) -> bool:
        """Take a reply; returns whether the command is done."""
        self.reply, self.lines = reply, lines
        self._is_answered.set()
        return True

    def refuse(self, refusal: Refusal) -> bool:
        """Take a refusal; returns whether the command is done."""
        self.refusal = refusal
        self._is_answered.set()
        return True

    async def wait(self) -> bytes:
        """Return the reply. Raises Refusal."""
        await self._is_answered.wait()
        if self.refusal is not None:
            raise self.refusal
        assert self.reply is not None  # noqa: S101 — answered, and not refused
        return self.reply


class PublishCommand(Command):
    """One publish whose confirmation somebody waits for."""

    receipt: Receipt

    def confirm(self, receipt: Receipt) -> tuple[Receipt | None, bool]:
        """Take a share of a confirmation; returns what is left of it, and whether the command is done."""
        self.receipt, left = receipt.split(1)
        self.answer(b"", [])
        return left, True


class AckCommand(Command):
    """An ack: nobody waits for it, and on a new connection it would be stale."""

    def __init__(self, line: bytes, subscription: "Subscription") -> None:
        super().__init__(line)
        self._subscription = subscription

    def resend(self) -> bytes:
        return b""

    def refuse(self, refusal: Refusal) -> bool:
        self._subscription.stale += 1
        return True


class PingCommand(Command):
    """The connection's own question whether the broker is there: nobody waits for the answer, and a new one is there."""

    def __init__(self) -> None:
        super().__init__(b"ping\n")

    def resend(self) -> bytes:
        return b""


class HelloCommand(Command):
    """The first command of a connection, each of which has its own; a refusal means that nothing else will go well."""

    def resend(self) -> bytes:
        return b""

    def refuse(self, refusal: Refusal) -> bool:
        logger.error("the broker refuses this client", code=refusal.code, reason=refusal.text)
        return super().refuse(refusal)


class SubscribeCommand(Command):
    """The command that makes a subscription."""

    def __init__(self, line: bytes, subscription: "Subscription") -> None:
        super().__init__(line)
        self._subscription = subscription

    def answer(self, reply: bytes, lines: list[bytes]) -> bool:
        self._subscription.begin(replies.subscription_name(reply))
        return super().answer(reply, lines)

    def refuse(self, refusal: Refusal) -> bool:
        self._subscription.end(refusal)
        return super().refuse(refusal)


class ResumeCommand(SubscribeCommand):
    """Goes on with a subscription on a new connection; each has its own."""

    def resend(self) -> bytes:
        return b""


class PublishRun(Command):
    """A run of publishes behind each other, all of one publisher; confirmations take them off its head."""

    def __init__(self, publisher: "Publisher") -> None:
        super().__init__(b"")
        self.publisher = publisher
        self.unconfirmed: deque[bytes] = deque()

    def resend(self) -> bytes:
        return b"".join(self.unconfirmed)

    def confirm(self, receipt: Receipt) -> tuple[Receipt | None, bool]:
        """Take a share of a confirmation; returns what is left of it, and whether the command is done."""
        mine, left = receipt.split(len(self.unconfirmed))
        for _ in range(mine.count):
            self.unconfirmed.popleft()
        self.publisher.confirm(mine)
        return left, not self.unconfirmed

    def refuse(self, refusal: Refusal) -> bool:
        self.unconfirmed.popleft()
        self.publisher.refuse(refusal)
        return not self.unconfirmed
