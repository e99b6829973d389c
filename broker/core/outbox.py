"""What goes to one connection, in the right order.

Always true: replies leave in the order of their commands, so a reply behind an unconfirmed `pub` waits with it; events
may pass waiting replies but never stand inside one.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, TypeAlias

from broker.errors import Refusal

__all__ = ["Answer", "Outbox"]

HIGH_WATER_BYTES: Final = 1 << 20
"""With so much unsent, no more events are taken for this connection."""


@dataclass(slots=True)
class _Awaited:
    """A place among the replies for the confirmation of offsets first…last of a topic; `reply` is what it says, if not that."""

    topic: str
    first: int
    last: int
    reply: bytes | None = None
    refusal: Refusal | None = None


@dataclass(slots=True)
class _AwaitedRecord:
    """A place for a reply that waits until record number `ticket` of the state is on the disk."""

    ticket: int
    reply: bytes


class Answer:
    """A place for a reply that has to be fetched; it leaves when `lines` is set, and those behind it wait."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        self.lines: bytes | None = None


_Place: TypeAlias = bytes | _Awaited | _AwaitedRecord | Answer


class Outbox:
    """Collects replies and events; `take` gives what may be sent now."""

    __slots__ = ("_ready", "_refusals", "_waiting", "size", "was_full")

    def __init__(self) -> None:
        self.size = 0
        self._refusals = 0
        # Whether there was no room for events before the last `take`.
        self.was_full = False
        self._ready: list[bytes] = []
        # No deque until something waits: an empty one costs 600 bytes for each of thousands of idle connections.
        self._waiting: deque[_Place] | tuple[()] = ()

    @property
    def has_room(self) -> bool:
        """Whether events may be added."""
        return self.size < HIGH_WATER_BYTES

    @property
    def awaited(self) -> int:
        """How many events wait to be confirmed, about."""
        return sum(place.last - place.first + 1 for place in self._waiting if isinstance(place, _Awaited))

    @property
    def is_waiting(self) -> bool:
        """Whether a reply waits for the disk."""
        return bool(self._waiting)

    @property
    def is_refusing(self) -> bool:
        """Whether a refusal of events waits, since something before it does."""
        return self._refusals > 0

    def reply(self, line: bytes) -> None:
        """Add a whole reply, line ends included."""
        if self._waiting:
            self._await(line)
        else:
            self._send(line)

    def events(self, lines: list[bytes]) -> None:
        """Add event lines."""
        self._ready += lines
        self.size += sum(map(len, lines))

    def expect(self, topic: str, first: int, last: int) -> None:
        """Add a place for the confirmation of events, merged with its neighbour's."""
        before = self._waiting[-1] if self._waiting else None
        if isinstance(before, _Awaited) and before.last == first - 1 and before.topic == topic and before.reply is None:
            before.last = last
        else:
            self._await(_Awaited(topic, first, last))

    def expect_stored(self, topic: str, offset: int, reply: bytes) -> None:
        """Add a reply that waits until the log has the event at `offset`."""
        self._await(_Awaited(topic, offset, offset, reply))

    def expect_duplicate(self, topic: str, offset: int) -> None:
        """Add a place for ``+OK dup``, which waits until the event that was first is confirmed itself."""
        self.expect_stored(topic, offset, f"+OK dup {topic} {offset}\n".encode())

    def expect_record(self, ticket: int, reply: bytes) -> None:
        """Add a reply that waits for the state's record number `ticket`."""
        self._await(_AwaitedRecord(ticket, reply))

    def expect_answer(self) -> Answer:
        """Add a place for a reply that has to be fetched."""
        answer = Answer()
        self._await(answer)
        return answer

    def fail(self, topic: str, visible: int, refusal: Refusal) -> None:
        """Answer what waits for events of `topic` from offset `visible` on with a refusal."""
        places: deque[_Place] = deque()
        for place in self._waiting:
            if isinstance(place, _Awaited) and place.topic == topic and place.last >= visible:
                if place.first < visible:
                    places.append(_Awaited(topic, place.first, visible - 1))
                    place.first = visible
                self._refusals += place.refusal is None
                place.refusal = refusal
            places.append(place)
        self._waiting = places

    def confirm(self, visible: dict[str, int], recorded: int, promise: str) -> None:
        """Move out what the disk has: events below `visible` of their topic, records up to number `recorded`."""
        waiting = self._waiting
        if isinstance(waiting, tuple):
            return
        while waiting:
            place = waiting[0]
            if isinstance(place, bytes):
                self._send(place)
            elif isinstance(place, _AwaitedRecord):
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
            elif place.last < visible[place.topic]:
                self._send(_confirmation(place, promise))
            else:
                self._confirm_part(place, visible[place.topic], promise)
                return
            waiting.popleft()

    def take(self) -> bytes:
        """Return everything that may be sent now, and forget it."""
        data = b"".join(self._ready)
        self._ready.clear()
        self.was_full = not self.has_room
        self.size = 0
        return data

    def _await(self, place: _Place) -> None:
        if isinstance(self._waiting, tuple):
            self._waiting = deque()
        self._waiting.append(place)

    def _confirm_part(self, place: _Awaited, visible: int, promise: str) -> None:
        """Confirm what is visible of a run that goes on growing, so that a steady publisher is not kept waiting."""
        if place.first < visible:
            self._send(_confirmation(_Awaited(place.topic, place.first, visible - 1), promise))
            place.first = visible

    def _refuse(self, place: _Awaited, refusal: Refusal) -> None:
        line = refusal_line(refusal)
        for _ in range(place.first, place.last + 1):
            self._send(line)

    def _send(self, line: bytes) -> None:
        self._ready.append(line)
        self.size += len(line)


def refusal_line(refusal: Refusal) -> bytes:
    """Return the reply that tells a refusal; its text never breaks the line."""
    text = " ".join(refusal.text.split())
    return f"-ERR {refusal.code} {text}".rstrip().encode("utf-8", "backslashreplace") + b"\n"


def _confirmation(place: _Awaited, promise: str) -> bytes:
    if place.reply is not None:
        return place.reply
    offsets = f"{place.first}" if place.first == place.last else f"{place.first}-{place.last}"
    return f"+OK pub {place.topic} {offsets} {promise}\n".encode()
