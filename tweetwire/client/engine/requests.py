"""Requests that wait for their replies, which come as notices and not in the order of the commands.

Always true: a request is in the table from its start until it is done. It is done once its command was answered and its reply
came, or once no reply can come any more. A request is never sent on two connections: its reply would go to the first one.
"""

import os
from functools import partial
from typing import Any

from tweetwire.client.engine.commands import OnceCommand
from tweetwire.client.engine.publishes import PublishCommand
from tweetwire.protocol import requests
from tweetwire.protocol.errors import BrokerError, BrokerLost, NoReply
from tweetwire.protocol.events import StoredEvent, encode_event
from tweetwire.protocol.notices import Replied
from tweetwire.protocol.request_reply import REPLIES, reply_event

__all__ = ["RequestCommand", "RequestTable", "reply_command"]


def reply_command(request: StoredEvent, msg: Any) -> PublishCommand:
    """Return the command that answers a request with `msg`. Raises ValueError if the event is not a request."""
    event = reply_event(request, msg, os.urandom(12).hex())
    return PublishCommand(requests.publish_line(requests.publish_prefix(REPLIES), encode_event(event)), REPLIES)


class RequestCommand(OnceCommand):
    """The command that publishes a request. The notice with its reply may come before or after the answer to the command."""

    def __init__(self, line: bytes, address: str, topic: str, id_: str) -> None:
        super().__init__(line, address)
        self.id = id_
        self._topic = topic
        self._event: StoredEvent | None = None
        self._has_replied = False

    def resend(self) -> bytes:
        # A caller that no longer waits for the reply leaves its command in the queue.
        return b"" if self.is_done else self.line

    def answer(self, reply: bytes) -> bool:
        """Take the confirmation that the request is stored. Returns True: the next answer is of another command."""
        self.reply = reply
        if self._has_replied:
            self._end_once()
        return True

    def take(self, event: StoredEvent | None) -> None:
        """Take the reply, or None if none came in time."""
        self._event, self._has_replied = event, True
        if event is None:
            self.error = NoReply(self._topic, self.id)
        if self.reply is not None:
            self._end_once()

    def fail(self, error: BrokerError) -> None:
        if not self.is_done:
            super().fail(error)

    def drop(self) -> None:
        if self._has_replied:
            self._end_once()
        else:
            super().drop()

    def abandon(self) -> None:
        """Stop waiting. A request that is not done ends with BrokerLost."""
        self.fail(
            BrokerLost(self._address, f"the broker at {self._address} did not answer the request {self.id!r:.80}")
        )

    def event(self) -> StoredEvent:
        """Return the reply to a request that is done. Raises NoReply, Refusal, or the BrokerError that prevented a reply."""
        if self.error is not None:
            raise self.error
        assert self._event is not None  # noqa: S101 — answered, with a reply
        return self._event

    def _end_once(self) -> None:
        if not self.is_done:
            self._end()


class RequestTable:
    """The requests of a client that wait for their replies, by id."""

    def __init__(self) -> None:
        self._by_id: dict[str, RequestCommand] = {}

    def __bool__(self) -> bool:
        """Return whether a request waits."""
        return bool(self._by_id)

    def add(self, command: RequestCommand) -> None:
        """Add a request before it is sent. Raises ValueError if one with its id waits."""
        if command.id in self._by_id:
            raise ValueError(
                f"this client already waits for a reply to the id {command.id!r:.80}; give each request its own id"
            )
        self._by_id[command.id] = command
        command.when_done(partial(self._forget, command))

    def note(self, replied: Replied) -> None:
        """Give a reply to its request. A reply that no request waits for is dropped."""
        command = self._by_id.get(replied.id)
        if command is not None:
            command.take(replied.event)

    def _forget(self, command: RequestCommand) -> None:
        del self._by_id[command.id]

    def end_connection(self) -> None:
        """End the requests whose replies would have come on the connection that is lost."""
        for command in list(self._by_id.values()):
            command.drop()

    def fail(self, error: BrokerError) -> None:
        """End all requests with `error`."""
        for command in list(self._by_id.values()):
            command.fail(error)
