"""What comes for those who are away: a durable topic ``inbox.<id>`` for each, delivered when they come.

Always true: `routed`, once it is kept, is below or at the first line whose inboxes are not all stored. What is routed again
after a kill has the producer and sequence that it had, so an inbox has it once. A line counts as delivered when the system
has taken it for the client's socket, since the client has no way to say more.
"""

from collections import deque
from typing import Final

import anyio
import msgspec
from anyio.abc import ByteStream
from msgspec import Raw

from broker.events import IncomingEvent, StoredEvent, decode_stored
from broker.gateways.outlet import Outlet
from broker.gateways.source_state import PRODUCER, SOURCE_LOG
from broker.protocol.commands import Ack, Checkpoint, Quit, Subscribe
from broker.server import Server

__all__ = ["Inboxes"]

SUBSCRIPTION: Final = "client"
PREFETCH: Final = 500
KEEP_EVERY_S: Final = 1.0
PATIENCE_S: Final = 1.0
UNCONFIRMED_MAX: Final = 20_000
_DAY_MS: Final = 86_400_000


class Inboxes:
    """Fills the inboxes and empties them. `routed` is the offset behind the last line that was put where it belongs."""

    def __init__(self, server: Server, routed: int) -> None:
        self.routed = routed
        self._server = server
        self._outlet = Outlet(server, "event-source-inboxes")
        self._put: dict[str, list[IncomingEvent]] = {}
        self._given = self._stored = 0
        # (events given, offset routed): when so many are stored, the offset may be kept
        self._marks: deque[tuple[int, int]] = deque()
        self._storable = routed
        self._kept = -1

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the disk that routing has to wait."""
        return self._outlet.unconfirmed > UNCONFIRMED_MAX

    @property
    def unconfirmed(self) -> int:
        """How many events are not known to be stored."""
        return self._outlet.unconfirmed

    def put(self, id_: bytes, offset: int, line: bytes) -> None:
        """Put a line into an inbox; it leaves by `hand_over`."""
        event = _event(line)
        event.producer, event.sequence = PRODUCER, offset
        self._put.setdefault(topic_of(id_), []).append(event)

    def put_back(self, id_: bytes, offset: int, lines: bytes) -> None:
        """Put in what a client that is gone was given and may not have got; it is from lines up to `offset`."""
        events = [_event(line) for line in lines.split(b"\n")[:-1]]
        if events:
            events[-1].producer, events[-1].sequence = PRODUCER, offset
            self._put.setdefault(topic_of(id_), []).extend(events)
            self.hand_over(self.routed)

    def hand_over(self, routed: int) -> None:
        """Publish what has been put; all lines before offset `routed` have been."""
        self.routed = routed
        for topic, events in self._put.items():
            self._outlet.give(topic, events)
            self._given += len(events)
        self._put.clear()
        self._marks.append((self._given, routed))
        self._server.carry_out()

    async def store(self) -> None:
        """Follow what is stored, for ever, and keep now and then how far that is."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_now_and_then)
            while True:
                self._stored += sum(stored.events for stored in await self._outlet.stored())
                self._move()

    async def catch_up(self, id_: bytes, stream: ByteStream, stalled_after_s: float) -> bool:
        """Send a client what its inbox has; False where it takes nothing for so long.

        Returns without another await behind the moment when nothing was left, so that nothing can come in between.
        """
        while topic_of(id_) not in self._server.broker.topics:
            if not self._outlet.is_failing:
                return True
            # What it is to get first may be among what the disk refuses.
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
        """Have the state keep how far the inboxes are stored."""
        self._move()
        if self._storable != self._kept:
            self._kept = self._storable
            command = Checkpoint(SOURCE_LOG, PRODUCER, str(self._kept))
            self._server.broker.execute(self._outlet.session, command, self._server.now_ms())
            self._server.carry_out()

    def close(self) -> None:
        """Leave the broker."""
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
    """A client's turn at its inbox: a subscription in the broker like any other."""

    def __init__(self, server: Server, id_: bytes) -> None:
        self._server = server
        self._topic = topic_of(id_)
        self._has_output = anyio.Event()
        self._session = server.admit(f"event-source-{id_.decode()}", self._wake)
        # Whatever happens to its connections, a client's line never becomes a dead letter.
        change = {"timeout_ms": _DAY_MS, "strikes": (), "max_wait_ms": 0}
        self._execute(Subscribe(self._topic, SUBSCRIPTION, PREFETCH, "earliest", change, may_create=False))

    @property
    def is_empty(self) -> bool:
        """Whether everything in the inbox has been sent."""
        topic = self._server.broker.topics[self._topic]
        subscription = topic.subscriptions.get(SUBSCRIPTION)
        return topic.next == topic.visible and (
            subscription is None or not (subscription.waiting or subscription.in_flight)
        )

    async def send_next(self, stream: ByteStream, stalled_after_s: float) -> bool:
        """Send some lines, once there are some; False where the client takes nothing for so long."""
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
        """Give back what was not sent."""
        self._execute(Quit())
        self._server.dismiss(self._session)

    def _wake(self) -> None:
        self._has_output.set()

    def _execute(self, command: Subscribe | Ack | Quit) -> None:
        self._server.broker.execute(self._session, command, self._server.now_ms())
        self._server.carry_out()


def topic_of(id_: bytes) -> str:
    """Return the topic that is somebody's inbox."""
    return f"inbox.{id_.decode()}"


def _event(line: bytes) -> IncomingEvent:
    return IncomingEvent(id=line.partition(b"|")[0].decode() or "0", msg=Raw(msgspec.json.encode(line.decode())))


def _line(event: StoredEvent) -> bytes:
    """Return the line that an event of an inbox is; what others have put there is sent as its JSON."""
    message = event.decode()
    return message.encode() + b"\n" if isinstance(message, str) else bytes(event.msg) + b"\n"
