"""Replies and events on their way to one connection, in the right order.

Always true: replies leave in the order of their commands, so a reply after an unconfirmed `pub` waits for it. Events may pass
waiting replies, but are never inside a reply.
"""

from collections import deque
from typing import Final

from broker.core.places import PLACE_BYTES, Answer, Awaited, AwaitedRecord, Place, Wait, confirmation, held_bytes
from tweetwire.protocol.errors import Refusal

__all__ = ["Outbox", "refusal_line"]

HIGH_WATER_BYTES: Final = 1 << 20
"""While at least this number of bytes is unsent, the connection gets no more events."""


class Outbox:
    """Collects replies and events; `take_ready` returns what may be sent now."""

    __slots__ = (
        *("_ready", "_refusals", "_waiting", "awaited", "awaited_bytes", "held", "marked", "plain", "replies", "size"),
        "was_full",
    )

    def __init__(self) -> None:
        self.size = 0
        # How many replies the connection was given since its start, and how many it has places for: one for each event
        # of a run of publishes
        self.replies = 0
        self._refusals = 0
        # The bytes of waiting replies; approximately how many events wait to be confirmed, and their bytes
        self.held = 0
        self.awaited = 0
        self.awaited_bytes = 0
        # How many places wait only for a log, and how many also wait for a `Wait`
        self.plain = 0
        self.marked = 0
        # Whether there was no room for events before the last `take_ready`
        self.was_full = False
        self._ready: list[bytes] = []
        # Make a deque only when a reply waits: an empty one costs 600 bytes for each of thousands of idle connections.
        self._waiting: deque[Place] | tuple[()] = ()

    @property
    def has_room(self) -> bool:
        """Whether events may be added."""
        return self.size < HIGH_WATER_BYTES

    @property
    def load(self) -> int:
        """Approximately how many bytes wait to be sent, including replies that wait for the disk or for a job."""
        return self.size + self.held

    @property
    def is_waiting(self) -> bool:
        """Whether a reply waits."""
        return bool(self._waiting)

    @property
    def is_refusing(self) -> bool:
        """Whether a refusal of events waits for earlier replies."""
        return self._refusals > 0

    def reply(self, line: bytes) -> None:
        """Add a complete reply, including its line ends."""
        self.replies += 1
        if self._waiting:
            self._await(line)
        else:
            self._send(line)

    def notice(self, line: bytes) -> None:
        """Add a line that answers no command. Like an event, it may pass replies that wait."""
        self._send(line)

    def add_events(self, lines: list[bytes]) -> None:
        """Add event lines."""
        self._ready += lines
        self.size += sum(map(len, lines))

    def expect_confirmation(self, topic: str, first: int, last: int, size: int = 0, wait: Wait | None = None) -> None:
        """Add a place for the confirmation of events with `size` bytes, or extend the place of the previous events."""
        self.replies += last - first + 1
        self.awaited += last - first + 1
        self.awaited_bytes += size
        before = self._waiting[-1] if self._waiting else None
        if (
            isinstance(before, Awaited)
            and before.last == first - 1
            and before.topic == topic
            and before.wait is wait
            and before.reply is None
            # The offset of a refused event is given to a later one, so this event may continue the offsets of a refused one.
            and before.refusal is None
        ):
            before.last = last
            before.size += size
        else:
            self._await(Awaited(topic, first, last, size=size, wait=wait))

    def expect_stored(self, topic: str, offset: int, reply: bytes, size: int = 0, wait: Wait | None = None) -> None:
        """Add a reply that waits until the log has the event at `offset`, whose line has `size` bytes.

        It then waits for `wait`, which adds the promise.
        """
        self.replies += 1
        self.awaited += 1
        self.awaited_bytes += size
        self._await(Awaited(topic, offset, offset, reply, size=size, wait=wait))

    def expect_duplicate(self, topic: str, offset: int, wait: Wait | None = None) -> None:
        """Add a place for ``+OK dup``, which waits until the log has the event that was published first."""
        end = "\n" if wait is None else ""
        self.expect_stored(topic, offset, f"+OK dup {topic} {offset}{end}".encode(), wait=wait)

    def expect_record(self, ticket: int, reply: bytes) -> None:
        """Add a reply that waits until the disk has record number `ticket`."""
        self.replies += 1
        self._await(AwaitedRecord(ticket, reply))

    def expect_record_and_stored(self, ticket: int, topic: str, offset: int, reply: bytes) -> None:
        """Add one reply that waits until the disk has record number `ticket` and the log has the event at `offset`."""
        self._await(AwaitedRecord(ticket, b""))
        self.expect_stored(topic, offset, reply)

    def expect_answer(self, size: int = 0) -> Answer:
        """Add a place in the order of replies for a reply of about `size` bytes that is made later."""
        self.replies += 1
        answer = Answer(size)
        self._await(answer)
        return answer

    def enlarge(self, answer: Answer, size: int) -> None:
        """Count `size` more bytes for a reply that is made later."""
        answer.size += size
        self.held += size

    def fail(self, topic: str, visible: int, refusal: Refusal) -> None:
        """Refuse the unconfirmed events of `topic`, which are those from offset `visible` on."""
        places: deque[Place] = deque()
        for place in self._waiting:
            if isinstance(place, Awaited) and place.topic == topic and place.last >= visible:
                if place.first < visible:
                    places.append(Awaited(topic, place.first, visible - 1, wait=place.wait))
                    self._count(place, 1)
                    self.held += PLACE_BYTES
                    place.first = visible
                self._refusals += place.refusal is None
                place.refusal = refusal
            places.append(place)
        self._waiting = places

    def settle_topic(self, topic: str, promise: str) -> None:
        """Write the replies that wait for events of a dropped topic. The fate of all these events is known."""
        places: deque[Place] = deque()
        for place in self._waiting:
            if isinstance(place, Awaited) and place.topic == topic and place.refusal is None:
                self._forget_awaited(place)
                line = confirmation(place, promise)
                self.held += held_bytes(line) - held_bytes(place)
                places.append(line)
            else:
                places.append(place)
        self._waiting = places

    def confirm(self, visible: dict[str, int], recorded: int, promise: str) -> None:
        """Release the replies whose events (below `visible` of their topic) or records (up to `recorded`) are on the disk."""
        waiting = self._waiting
        if isinstance(waiting, tuple):
            return
        while waiting:
            place = waiting[0]
            if isinstance(place, bytes):
                self._send(place)
            elif isinstance(place, AwaitedRecord):
                if place.ticket > recorded:
                    return
                self._send(place.reply)
            elif isinstance(place, Answer):
                if place.lines is None:
                    return
                self._send(place.lines)
            elif place.refusal is not None:
                self._refusals -= 1
                self._refuse(place, place.refusal)
            elif place.last < (end := visible[place.topic] if place.wait is None else place.wait.end):
                self._send(confirmation(place, promise))
            else:
                self._confirm_part(place, end, promise)
                return
            waiting.popleft()
            self.held -= held_bytes(place)
            if isinstance(place, Awaited):
                self._forget_awaited(place)

    def marked_head(self) -> tuple[str, int, Wait] | None:
        """Return (topic, first offset, wait) of the next place if it waits for a `Wait`, else None."""
        place = self._waiting[0] if self._waiting else None
        if not isinstance(place, Awaited) or place.wait is None or place.refusal is not None:
            return None
        return place.topic, place.first, place.wait

    def take_ready(self) -> bytes:
        """Remove and return all output that may be sent now."""
        data = b"".join(self._ready)
        self._ready.clear()
        self.was_full = not self.has_room
        self.size = 0
        return data

    def _await(self, place: Place) -> None:
        if isinstance(self._waiting, tuple):
            self._waiting = deque()
        self._waiting.append(place)
        self.held += held_bytes(place)
        if isinstance(place, Awaited):
            self._count(place, 1)

    def _count(self, place: Awaited, places: int) -> None:
        if place.wait is None:
            self.plain += places
        else:
            self.marked += places

    def _confirm_part(self, place: Awaited, visible: int, promise: str) -> None:
        """Confirm the stored part of a run of publishes that still grows, so that a steady publisher does not wait."""
        if place.first < visible:
            self._send(confirmation(Awaited(place.topic, place.first, visible - 1, wait=place.wait), promise))
            confirmed = place.size * (visible - place.first) // (place.last + 1 - place.first)
            place.size -= confirmed
            self.awaited -= visible - place.first
            self.awaited_bytes -= confirmed
            place.first = visible

    def _forget_awaited(self, place: Awaited) -> None:
        self.awaited -= place.last - place.first + 1
        self.awaited_bytes -= place.size
        self._count(place, -1)

    def _refuse(self, place: Awaited, refusal: Refusal) -> None:
        line = refusal_line(refusal)
        for _ in range(place.first, place.last + 1):
            self._send(line)

    def _send(self, line: bytes) -> None:
        self._ready.append(line)
        self.size += len(line)


def refusal_line(refusal: Refusal) -> bytes:
    """Return the reply for a refusal, without line ends in its text."""
    text = " ".join(refusal.text.split())
    return f"-ERR {refusal.code} {text}".rstrip().encode("utf-8", "backslashreplace") + b"\n"
