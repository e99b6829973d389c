"""Commands, their replies, and the lines that they send again on a new connection.

A command is done once its reply or refusal has come, or if no reply can come any more. Some commands are useless on a new
connection and are not sent again. For example, an ack would be stale there, because events in flight are delivered again.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from tweetwire.client.engine.subscription import SubscriptionState
from tweetwire.protocol import replies
from tweetwire.protocol.errors import BrokerError, BrokerLost, ProtocolError, Refusal
from tweetwire.protocol.greeting import identity_of
from tweetwire.protocol.reply_heads import answers

__all__ = [
    "AckCommand",
    "Command",
    "ConnectionCommand",
    "GreetingCommand",
    "HelloCommand",
    "LeaveCommand",
    "LoginPostponed",
    "OnceCommand",
    "ReadCommand",
    "ResumeCommand",
    "SubscribeCommand",
    "Trouble",
]


class Trouble(NamedTuple):
    """A problem for the client's log: a log event and its fields."""

    event: str
    fields: dict[str, Any]


class LoginPostponed(ConnectionError):
    """The broker refused a login that may succeed on a later connection, for example because it has many logins."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class Command:
    """One command and its reply.

    Attributes:
        turns: Whether events after the reply may belong to another subscription than events before it.
        is_passing: Whether the command ends with its connection.
        trouble: The entry for the log after a refusal, if no caller waits for it.
    """

    turns = False
    is_passing = False
    trouble: Trouble | None = None

    def __init__(self, line: bytes) -> None:
        self.line = line
        self.reply: bytes | None = None
        self.error: BrokerError | None = None
        self.is_done = False
        self._calls: tuple[Callable[[], None], ...] = ()

    def when_done(self, call: Callable[[], None]) -> None:
        """Call a function once the command is done. The command must not be done yet."""
        self._calls = (*self._calls, call)

    def resend(self) -> bytes:
        """Return the bytes to send on a new connection, which may be none."""
        return self.line

    def fits(self, reply: bytes) -> bool:
        """Return whether `reply`, which is not a refusal, can be the reply to this command."""
        return answers(self.line, reply)

    def answer(self, reply: bytes) -> bool:
        """Take the reply. Returns whether the command is done."""
        self.reply = reply
        return self._end()

    def refuse(self, refusal: Refusal) -> bool:
        """Take a refusal. Returns whether the command is done."""
        self.fail(refusal)
        return True

    def fail(self, error: BrokerError) -> None:
        """End the command with an error, because no reply will come."""
        self.error = error
        self._end()

    def drop(self) -> None:
        """End the command without a reply, because it is useless after the end of its connection."""
        self._end()

    def outcome(self) -> bytes:
        """Return the reply to a command that is done. Raises Refusal, or the BrokerError that prevented a reply."""
        if self.error is not None:
            raise self.error
        assert self.reply is not None  # noqa: S101 — answered, and not refused
        return self.reply

    def _end(self) -> bool:
        self.is_done = True
        for call in self._calls:
            call()
        return True


class OnceCommand(Command):
    """A command that deletes or skips events. It is never sent again, since a repeated one could delete later events.

    If the connection is lost before its reply, it ends with BrokerLost.
    """

    is_passing = True

    def __init__(self, line: bytes, address: str) -> None:
        super().__init__(line)
        self._address = address

    def drop(self) -> None:
        self.fail(BrokerLost(self._address))


class ConnectionCommand(Command):
    """A command about the connection itself, ``ping`` or ``quit``; a new connection does not need it."""

    is_passing = True


class GreetingCommand(ConnectionCommand):
    """Stands for the broker's greeting: it sends nothing, and the greeting is its reply.

    `on_identity` is called with the identity of the broker's data folder, or with None if the broker does not show it.
    """

    def __init__(self, on_identity: Callable[[str | None], None]) -> None:
        super().__init__(b"")
        self._on_identity = on_identity

    def answer(self, reply: bytes) -> bool:
        self._on_identity(identity_of(reply))
        return super().answer(reply)

    def fits(self, reply: bytes) -> bool:
        return reply.startswith(b"+OK ")


class HelloCommand(ConnectionCommand):
    """The login, which is the first command of each connection. After a refusal, no other command can succeed."""

    def refuse(self, refusal: Refusal) -> bool:
        """Take a refusal. Raises LoginPostponed if the login may succeed on a new connection."""
        if refusal.is_retryable:
            raise LoginPostponed(refusal)
        self.trouble = Trouble("the broker refuses this client", {"code": refusal.code, "reason": refusal.text})
        return super().refuse(refusal)


class ReadCommand(Command):
    """A read. Event lines follow its reply: at most `limit`, and no further line once they have over `bytes_max` bytes."""

    def __init__(self, line: bytes, limit: int, bytes_max: int) -> None:
        super().__init__(line)
        self.lines: list[bytes] = []
        self.after = 0
        self._limit = limit
        self._bytes_max = bytes_max
        self._count = 0
        self._bytes = 0

    def resend(self) -> bytes:
        self.lines, self._bytes = [], 0
        return super().resend()

    def answer(self, reply: bytes) -> bool:
        self._count, self.after = replies.read_head(reply, self._limit)
        self.reply = reply
        return self._end_if_whole()

    def take(self, line: bytes) -> bool:
        """Take one of the event lines. Returns whether the command is done."""
        if self._bytes > self._bytes_max:
            raise ProtocolError("these are more bytes than the client has requested", line)
        self._bytes += len(line)
        self.lines.append(line)
        return self._end_if_whole()

    def _end_if_whole(self) -> bool:
        return len(self.lines) >= self._count and self._end()


class AckCommand(ConnectionCommand):
    """An ack, a nack or a begin of `count` events. Its subscription counts the events that are stale or refused."""

    def __init__(self, line: bytes, subscription: SubscriptionState, count: int) -> None:
        super().__init__(line)
        self._subscription = subscription
        self._count = count

    def answer(self, reply: bytes) -> bool:
        settled = replies.settled(reply)
        if settled < self._count:
            self._subscription.stale += replies.unsettled(self.line, settled)
        return super().answer(reply)

    def refuse(self, refusal: Refusal) -> bool:
        if refusal.code in replies.NOT_IN_FLIGHT:
            self._subscription.stale += replies.unsettled(self.line, 0)
        else:
            self._subscription.refused += self._count
            self.trouble = Trouble(
                "the broker refuses an ack or a nack, the events are delivered again",
                {"topic": self._subscription.topic, "events": self._count, "reason": str(refusal)},
            )
        return super().refuse(refusal)


class SubscribeCommand(Command):
    """The command that makes a subscription."""

    turns = True

    def __init__(self, line: bytes, subscription: SubscriptionState) -> None:
        super().__init__(line)
        self._subscription = subscription
        self._is_abandoned = False

    def abandon(self) -> None:
        """Note that no caller waits for the reply, and that the client leaves the subscription right after this command."""
        self._is_abandoned = self.is_passing = True

    def answer(self, reply: bytes) -> bool:
        if not self._is_abandoned:
            self._subscription.begin(replies.subscription_name(reply))
        return super().answer(reply)

    def refuse(self, refusal: Refusal) -> bool:
        self._subscription.end(refusal)
        return super().refuse(refusal)


class ResumeCommand(SubscribeCommand):
    """The command that continues a subscription on a new connection. Each connection has a new one.

    `on_refused` is called after a refusal, which ends the subscription.
    """

    is_passing = True

    def __init__(self, line: bytes, subscription: SubscriptionState, on_refused: Callable[[], None]) -> None:
        super().__init__(line, subscription)
        self._on_refused = on_refused

    def refuse(self, refusal: Refusal) -> bool:
        self._on_refused()
        return super().refuse(refusal)


class LeaveCommand(Command):
    """The command that leaves a subscription. `on_left` is called once the broker has answered.

    After an abandoned subscribe there is no `on_left`, and the command ends with its connection: a new connection has
    nothing to leave.
    """

    turns = True

    def __init__(self, line: bytes, on_left: Callable[[], None] | None = None) -> None:
        super().__init__(line)
        self._on_left = on_left
        self.is_passing = on_left is None

    def answer(self, reply: bytes) -> bool:
        if self._on_left is not None:
            self._on_left()
        return super().answer(reply)
