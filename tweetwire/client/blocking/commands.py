"""The blocking client's commands with one answer: reading a log, producers, topics, figures, and commands as typed."""

from collections.abc import Sequence
from time import monotonic, sleep
from typing import Any, Literal

from tweetwire.client.blocking.link import BlockingLink
from tweetwire.client.engine.commands import ReadCommand
from tweetwire.client.engine.read_wait import PAUSE_S, ReadWait
from tweetwire.client.engine.requests import RequestCommand, reply_command
from tweetwire.protocol import admin_requests, replies, requests
from tweetwire.protocol.claim_requests import claim_line
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.events import Event, StoredEvent, encode_event
from tweetwire.protocol.replies import Page, ProducerPosition, Receipt, TopicInfo
from tweetwire.protocol.requests import Start

__all__ = ["BlockingCommands"]


class BlockingCommands:
    """The part of `SyncClient` that sends one command and returns the broker's answer.

    It is a base class, so that a user calls these commands as methods of the client. The client sets the attributes.
    """

    _link: BlockingLink
    _line_bytes_max: int
    _read_wait_s: float

    def request(self, topic: str, event: Event, *, timeout_s: float = 5.0) -> StoredEvent:
        """Publish an event, and wait for the reply of a responder. `Client.request` describes the arguments and errors.

        Args:
            topic: The topic.
            event: The request.
            timeout_s: Longest wait for the reply, in seconds; at most an hour.

        Returns:
            The reply. Its `parent` is the id of the request.

        Raises:
            NoReply: No reply came in time.
            Refusal: The broker refuses the request.
            BrokerLost: The connection was lost before the reply, or see `SyncClient`. The request is not sent again.
            ValueError: The event cannot be written as JSON.
        """
        line = requests.request_line(topic, timeout_s, encode_event(event))
        command = RequestCommand(line, self._link.address, topic, event.id)
        self._link.check()
        self._link.engine.requests.add(command)
        try:
            with self._link.exchange():
                self._link.engine.send(command)
                self._link.wait_until(lambda: command.is_done or command.reply is not None)
            # A reply may take longer than the broker may be silent, so the link checks meanwhile that the broker is alive.
            deadline = monotonic() + timeout_s + self._link.timeout_s
            while not command.is_done and (left_s := deadline - monotonic()) > 0:
                self._link.listen(left_s)
        finally:
            command.abandon()
        return command.event()

    def reply(self, request: StoredEvent, msg: Any) -> Receipt:
        """Answer a request: publish `msg` to the topic ``replies`` for the client that waits, as `Client.reply` does.

        Args:
            request: An event that was published by `request`.
            msg: Any value that msgspec can encode as JSON.

        Raises:
            ValueError: The event is not a request, or `msg` cannot be written as JSON.
            Refusal: The broker refuses the reply.
            BrokerLost: See `SyncClient`.
        """
        command = reply_command(request, msg)
        self._link.run(command)
        command.outcome()
        return command.receipt

    def read_lines(
        self,
        topic: str,
        offset: int | str,
        *,
        limit: int = 10_000,
        bytes_max: int = 8 << 20,
        wait_s: float = 0.0,
        log: str | None = None,
    ) -> tuple[list[bytes], int]:
        """Read events from the log as stored lines, without a subscription.

        Args:
            topic: The topic.
            offset: Where to start: an offset, ``earliest``, ``latest``, or a time (ISO 8601).
            limit: Largest number of lines.
            bytes_max: Approximate size limit of all lines together, in bytes.
            wait_s: Longest wait for the next event at the end of the log, in seconds.
            log: The id that the topic's log must have, from `topics` or `stats`. It changes when a topic is dropped and made
                again. None allows any log.

        Returns:
            The lines, which are JSON without a line end, and the offset to continue from.

        Raises:
            Refusal: The broker refuses to read, for example because the topic does not exist.
            BrokerLost: See `SyncClient`.
        """
        wait = ReadWait(wait_s, self._read_wait_s, monotonic())
        while True:
            line = requests.read_line(topic, offset, limit, bytes_max, wait.next_s(monotonic()), log=log)
            command = ReadCommand(line, limit, bytes_max + self._line_bytes_max)
            self._link.run(command)
            if isinstance(command.error, Refusal) and wait.outlasts(command.error, monotonic()):
                sleep(PAUSE_S)
                continue
            command.outcome()
            if command.lines or wait.is_over(monotonic()):
                return command.lines, command.after
            offset = command.after

    def read(
        self, topic: str, offset: int | str, *, limit: int = 1000, wait_s: float = 0.0, log: str | None = None
    ) -> Page:
        """Read up to `limit` events from the log, as `read_lines` does, and return them with the offset to continue from."""
        return replies.page(*self.read_lines(topic, offset, limit=limit, wait_s=wait_s, log=log))

    def last(self, topic: str, producer: str) -> ProducerPosition | None:
        """Return the position of a producer on a topic, or None if the topic does not know it. Raises Refusal, BrokerLost."""
        return replies.position_answer(self._link.ask(requests.last_line(topic, producer)))

    def checkpoint(self, topic: str, producer: str, value: str, *, epoch: int | None = None) -> None:
        """Set a producer's checkpoint without an event.

        Returns once it is on the broker's disk. Raises Refusal, BrokerLost.
        """
        self._link.ask(requests.checkpoint_line(topic, producer, value, epoch))

    def claim(self, topic: str, producer: str, *, only_free: bool = False, epoch: int | None = None) -> int:
        """Claim a producer, so that no other client publishes as it. Returns the epoch, once it is on the broker's disk.

        From then on, the broker refuses the producer's events, checkpoints and skips with another epoch, with the code
        ``fenced``. All events that it accepted before are stored, so `last` shows where to continue. Pass the epoch to
        `publish`, `checkpoint` and `skip`. Claim again with `epoch` after each new connection.

        Args:
            topic: The topic.
            producer: The producer.
            only_free: Raise Refusal ``fenced`` while the connection of another client holds the producer.
            epoch: Continue the claim with this epoch on a new connection. Raises Refusal ``fenced`` if it is no longer the
                current one.

        Raises:
            Refusal: The broker refuses the claim.
            BrokerLost: See `SyncClient`.
            ValueError: `only_free` and `epoch` are both given.
        """
        line = claim_line(topic, producer, only_free=only_free, epoch=epoch)
        return replies.claimed(self._link.ask(line))

    def skip(self, topic: str, producer: str, sequence: int, *, epoch: int | None = None) -> None:
        """Give up a producer's refused events up to `sequence`, so that the broker accepts later ones.

        Raises Refusal, BrokerLost.
        """
        self._link.ask(requests.skip_line(topic, producer, sequence, epoch))

    def forget(self, topic: str, producer: str) -> None:
        """Make a topic forget a producer, which only administrators may do.

        Returns once the change is on the broker's disk. Raises Refusal, BrokerLost.
        """
        self._link.ask(requests.forget_line(topic, producer))

    def create(self, topic: str, **retention: str) -> bool:
        """Make a topic. Returns whether it is new, once it is on the broker's disk.

        Args:
            topic: The topic. An existing one stays as it is.
            retention: Options of the command ``retain`` for a new topic, such as ``age="7d"`` or ``at_most="20GiB"``.

        Raises:
            Refusal: For example, the topic exists and its retention is another one.
            BrokerLost: See `SyncClient`.
            ValueError: An option does not exist, or is not one word.
        """
        return replies.created(self._link.ask(admin_requests.create_line(topic, retention)))

    def drop(self, topic: str, *, if_empty: bool = False) -> None:
        """Delete a topic with its events, subscriptions and documentation. Returns once it is gone from the broker's disk.

        The command is not sent again on a new connection. So after BrokerLost, the topic may or may not exist.

        Args:
            topic: The topic.
            if_empty: Refuse a topic that has events.

        Raises:
            Refusal: For example, the topic does not exist.
            BrokerLost: The connection was lost before the reply.
        """
        self._link.ask_once(admin_requests.drop_line(topic, if_empty=if_empty))

    def purge(self, topic: str, before: Start | None = None) -> int:
        """Delete the events of a topic that are before a place, or all of them. Raises the errors of `drop`.

        Args:
            topic: The topic.
            before: An offset, ``earliest``, ``latest``, or a time (ISO 8601). None deletes all events.

        Returns:
            The offset of the first event that is left, or of the next event if none is left.
        """
        return replies.earliest_kept(self._link.ask_once(admin_requests.purge_line(topic, before)))

    def seek(self, topic: str, name: str, to: Start) -> int:
        """Continue a durable subscription at another place. Raises the errors of `drop`.

        Every event from there on is delivered again, without failed tries. Every event before it is settled.

        Args:
            topic: The topic.
            name: The subscription.
            to: An offset, ``earliest``, ``latest``, or a time (ISO 8601).

        Returns:
            The offset at which the subscription continues.
        """
        return replies.sought(self._link.ask_once(admin_requests.seek_line(topic, name, to)))

    def pause(self, topic: str, name: str) -> None:
        """Deliver no more events to a durable subscription, until `resume`. Events in flight can be settled.

        Raises Refusal, BrokerLost.
        """
        self._link.ask(admin_requests.pause_line(topic, name))

    def resume(self, topic: str, name: str) -> None:
        """Deliver events to a paused subscription again. Raises Refusal, BrokerLost."""
        self._link.ask(admin_requests.resume_line(topic, name))

    def end(self, topic: str, name: str) -> None:
        """End a durable subscription of other clients, and drop its backlog. Raises the errors of `drop`.

        Args:
            topic: The topic.
            name: The subscription. A subscription of this client is refused; end it with `unsubscribe`.
        """
        self._link.engine.subscriptions.check_other(topic, name)
        self._link.ask_once(admin_requests.end_line(topic, name))

    def discard(self, topic: str, name: str, refs: Sequence[int | str] | Literal["all"]) -> int:
        """Settle dead events of a durable subscription without delivering them. Raises the errors of `drop`.

        Args:
            topic: The topic.
            name: The subscription.
            refs: Offsets as integers and ids as text, or ``"all"``. Refs are sent in parts of 512.

        Returns:
            The number of events.
        """
        lines = admin_requests.discard_lines(topic, name, refs)
        return sum([replies.discarded(self._link.ask_once(line)) for line in lines])

    def topics(self) -> list[TopicInfo]:
        """Return all topics, in the order of their names. Raises BrokerLost."""
        return replies.topics_answer(self._link.ask(b"topics\n"))

    def stats(self, topic: str | None = None) -> dict[str, Any]:
        """Return all figures of the broker, or with `topic`, those of one topic in the same form.

        Raises Refusal, BrokerLost.
        """
        return replies.stats_answer(self._link.ask(requests.stats_line(topic)))

    def command(self, line: str) -> str:
        """Send a command as a user would type it, and return its one-line reply.

        Raises:
            Refusal: The broker refuses the command.
            BrokerLost: See `SyncClient`.
            ValueError: The command has a reply of several lines, or `line` is not one line.
        """
        return replies.text(self._link.ask(requests.command_line(line)))

    def ping(self) -> None:
        """Send a ``ping`` and wait for the broker's answer. Raises BrokerLost."""
        self._link.ask(b"ping\n")
