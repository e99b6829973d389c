"""The inboxes: a durable topic ``inbox.<id>`` for each absent client, delivered when the client connects.

Always true: the stored value of `routed` is at most the offset of the first line that is missing in an inbox. A line that
is routed again after a kill has the same producer and sequence, so the broker stores it once. A line counts as delivered
when the system has accepted it for the client's socket, since the client cannot confirm it.
"""

from collections import deque
from typing import Final

import anyio
import msgspec
from anyio.abc import ByteStream
from msgspec import Raw

from broker.gateways.event_source.outlet import Outlet
from broker.gateways.event_source.state import PRODUCER, SOURCE_LOG
from broker.server import Server
from tweetwire.protocol.events import IncomingEvent, StoredEvent, decode_stored
from tweetwire.protocol.verbs.session import Quit
from tweetwire.protocol.verbs.settling import Ack
from tweetwire.protocol.verbs.subscribing import Subscribe

__all__ = ["INBOXES", "Inboxes"]

INBOXES: Final = "inbox."
"""The prefix of the names of all inboxes."""
SUBSCRIPTION: Final = "client"
PREFETCH: Final = 500
KEEP_EVERY_S: Final = 1.0
PATIENCE_S: Final = 1.0
UNCONFIRMED_MAX: Final = 20_000
_DAY_MS: Final = 86_400_000


class Inboxes:
    """Fills and empties the inboxes. `routed` is the offset after the last line that was given to clients and inboxes."""

    def __init__(self, server: Server, routed: int) -> None:
        self.routed = routed
        self._server = server
        self._outlet = Outlet(server, "event-source-inboxes")
        self._put: dict[str, list[IncomingEvent]] = {}
        self._given = self._stored = 0
        # (events given, offset routed): once this number of events is stored, the offset may be stored
        self._marks: deque[tuple[int, int]] = deque()
        self._storable = routed
        self._kept = -1

    @property
    def is_behind(self) -> bool:
        """Whether more than `UNCONFIRMED_MAX` events wait for the disk, so that routing has to wait."""
        return self._outlet.unconfirmed > UNCONFIRMED_MAX

    @property
    def unconfirmed(self) -> int:
        """How many events are not confirmed yet."""
        return self._outlet.unconfirmed

    def put(self, id_: bytes, offset: int, line: bytes) -> None:
        """Put a line into an inbox. `hand_over` publishes it."""
        event = _event(line)
        event.producer, event.sequence = PRODUCER, offset
        self._put.setdefault(topic_of(id_), []).append(event)

    def put_back(self, id_: bytes, offset: int, lines: bytes) -> None:
        """Put lines into the inbox of a client that left and may not have received them. `offset` is that of the last line."""
        events = [_event(line) for line in lines.split(b"\n")[:-1]]
        if events:
            events[-1].producer, events[-1].sequence = PRODUCER, offset
            self._put.setdefault(topic_of(id_), []).extend(events)
            self.hand_over(self.routed)

    def hand_over(self, routed: int) -> None:
        """Publish the lines that were put into inboxes. All lines before offset `routed` were put."""
        self.routed = routed
        for topic, events in self._put.items():
            self._outlet.give(topic, events)
            self._given += len(events)
        self._put.clear()
        self._marks.append((self._given, routed))
        self._server.do_work()

    async def store(self) -> None:
        """Count stored events forever. From time to time, store the offset up to which the inboxes are complete."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_now_and_then)
            while True:
                self._stored += sum(stored.events for stored in await self._outlet.stored())
                self._move()

    async def catch_up(self, id_: bytes, stream: ByteStream, stalled_after_s: float) -> bool:
        """Send a client the lines of its inbox. Returns False if it does not read for `stalled_after_s` seconds.

        There is no await between finding the inbox empty and the return, so no line can be added in between.
        """
        while topic_of(id_) not in self._server.broker.topics:
            if not self._outlet.is_failing:
                return True
            # The disk may have refused the client's first lines, so wait until they are in the inbox.
            await anyio.sleep(PATIENCE_S)
        reading = _Reading(self._server, id_)
        try:
            while not (reading.is_empty and not self._outlet.is_failing):
                if not await reading.send_next(stream, stalled_after_s):
                    return False
        finally:
            reading.close()
        return True

    def keep(self) -> None:
        """Store the offset up to which the inboxes are complete."""
        self._move()
        if self._storable == self._kept:
            return
        # The outlet's session cannot send a command for this: it may not write to the source's log, and it takes each refusal
        # for one of its events.
        self._server.broker.keep_checkpoint(SOURCE_LOG, PRODUCER, str(self._storable))
        self._kept = self._storable
        self._server.do_work()

    def close(self) -> None:
        """End the gateway's session in the broker."""
        self._outlet.close()

    def _move(self) -> None:
        stored = self._stored + self._outlet.dropped
        while self._marks and self._marks[0][0] <= stored and not self._outlet.is_failing:
            self._storable = self._marks.popleft()[1]

    async def _keep_now_and_then(self) -> None:
        while True:
            await anyio.sleep(KEEP_EVERY_S)
            self.keep()


class _Reading:
    """The delivery of one inbox to its client, by an ordinary subscription."""

    def __init__(self, server: Server, id_: bytes) -> None:
        self._server = server
        self._topic = topic_of(id_)
        self._has_output = anyio.Event()
        self._session = server.admit(f"event-source-{id_.decode()}", self._wake)
        # However often its connections fail, a client's line must never become a dead letter.
        change = {"timeout_ms": _DAY_MS, "strikes": (), "max_wait_ms": 0}
        self._execute(Subscribe(self._topic, SUBSCRIPTION, PREFETCH, "earliest", change, may_create=False))

    @property
    def is_empty(self) -> bool:
        """Whether all lines of the inbox have been sent."""
        topic = self._server.broker.topics[self._topic]
        subscription = topic.subscriptions.get(SUBSCRIPTION)
        return topic.next == topic.visible and (
            subscription is None or not (subscription.waiting or subscription.in_flight)
        )

    async def send_next(self, stream: ByteStream, stalled_after_s: float) -> bool:
        """Wait for the next lines and send them. Returns False if the client does not read for `stalled_after_s` seconds."""
        events = [decode_stored(line) for line in self._session.take_output().splitlines() if line.startswith(b"{")]
        if not events:
            self._has_output = anyio.Event()
            with anyio.move_on_after(PATIENCE_S):
                await self._has_output.wait()
            return True
        with anyio.move_on_after(stalled_after_s) as patience:
            await stream.send(b"".join(map(_line, events)))
        if patience.cancelled_caught:
            return False
        self._server.broker.sent(self._session, self._server.now_ms())
        self._execute(Ack(self._topic, [event.offset for event in events], []))
        return True

    def close(self) -> None:
        """Return the lines that were not sent to the inbox, and end the session."""
        self._execute(Quit())
        self._server.dismiss(self._session)

    def _wake(self) -> None:
        self._has_output.set()

    def _execute(self, command: Subscribe | Ack | Quit) -> None:
        self._server.broker.execute(self._session, command, self._server.now_ms())
        self._server.do_work()


def topic_of(id_: bytes) -> str:
    """Return the topic that is a client's inbox."""
    return f"{INBOXES}{id_.decode()}"


def _event(line: bytes) -> IncomingEvent:
    return IncomingEvent(id=line.partition(b"|")[0].decode() or "0", msg=Raw(msgspec.json.encode(line.decode())))


def _line(event: StoredEvent) -> bytes:
    """Return the line in an event of an inbox. An event that another program published there is sent as its JSON."""
    message = event.decode()
    return message.encode() + b"\n" if isinstance(message, str) else bytes(event.msg) + b"\n"
