"""Remember refused sequences. If a later one was stored first, the refused one would count as a duplicate and be lost.

So once the broker has refused a sequence, it refuses the producer's later ones with ``out_of_sequence``. This ends when the
producer sends the refused sequence again, or gives it up (``skip``). The producer then sends the sequences refused after it
again, in increasing order. Until the last of these has arrived, the broker accepts no higher sequence: a publisher that
pipelines may have sent a higher one before it read the refusals.
"""

from collections.abc import Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.events import IncomingEvent

__all__ = ["Gap", "Gaps", "SessionGaps"]

K = TypeVar("K")

GAPS_MAX: Final = 1000
"""The most gaps of one connection, and of one topic. Beyond that, the oldest gap is forgotten."""

_EVERYWHERE: Final = ""


class Gap(NamedTuple):
    """The refused sequences of a producer.

    The sequence `first` must come before any later one; it is None once it has come. No sequence above `last` is
    accepted.
    """

    first: int | None
    last: int


class Gaps(Generic[K]):
    """The gaps of producers. `of` is a plain dictionary because each event looks it up, and it is nearly always empty."""

    __slots__ = ("of",)

    def __init__(self) -> None:
        self.of: dict[K, Gap] = {}

    def __bool__(self) -> bool:
        return bool(self.of)

    def get(self, key: K) -> Gap | None:
        """Return a producer's gap."""
        return self.of.get(key)

    def open(self, key: K, first: int, last: int | None = None) -> None:
        """Note that a sequence, or all sequences from `first` to `last`, were refused."""
        last = first if last is None else last
        known = self.of.get(key, Gap(None, last))
        self._put_last(key, Gap(first if known.first is None else min(first, known.first), max(last, known.last)))

    def check(self, key: K, topic: str, producer: str, sequence: int) -> None:
        """Raise Refusal ``out_of_sequence``, which names `topic` and `producer`, if a sequence comes too early."""
        gap = self.of.get(key)
        if gap is None or sequence <= (gap.last if gap.first is None else gap.first):
            return
        self.of[key] = Gap(gap.first, max(gap.last, sequence))
        due = gap.last if gap.first is None else gap.first
        raise Refusal(
            "out_of_sequence",
            f"{producer} must send {due} again, which was not stored, or give it up: skip {topic} {producer} {due}",
        )

    def wait_for(self, key: K, last: int) -> None:
        """Accept nothing above `last` until the sequence `last` has come."""
        gap = self.of.get(key, Gap(None, last))
        self._put_last(key, Gap(gap.first, max(gap.last, last)))

    def note(self, key: K, sequence: int) -> None:
        """Note that a sequence was accepted."""
        gap = self.of.get(key)
        if gap is None:
            return
        first = None if gap.first == sequence else gap.first
        self._keep(key, Gap(first, gap.last), sequence)

    def skip(self, key: K, sequence: int) -> None:
        """Give up the refused sequences up to `sequence`."""
        gap = self.of.get(key)
        if gap is not None:
            first = None if gap.first is None or gap.first <= sequence else gap.first
            self._keep(key, Gap(first, gap.last), sequence)

    def forget(self, key: K) -> None:
        """Forget the gap of a producer."""
        self.of.pop(key, None)

    def _put_last(self, key: K, gap: Gap) -> None:
        self.of.pop(key, None)
        while len(self.of) >= GAPS_MAX:
            del self.of[next(iter(self.of))]
        self.of[key] = gap

    def _keep(self, key: K, gap: Gap, reached: int) -> None:
        if gap.first is None and reached >= gap.last:
            del self.of[key]
        else:
            self.of[key] = gap


class SessionGaps:
    """The events that were refused on one connection before their topic could note that, by topic and producer.

    A line that cannot be read may have come from any producer. After it, each producer's next event on this connection must
    have the sequence after its last one.
    """

    __slots__ = ("_hidden", "_lines", "_shown", "known")

    def __init__(self) -> None:
        self.known: Gaps[tuple[str, str]] = Gaps()
        # {topic: number of its last unreadable line}, and how many unreadable lines there were
        self._hidden: dict[str, int] = {}
        self._lines = 0
        # The producers that have sent the right sequence since: {(topic, producer): number of the unreadable line before it}.
        # When this is full, the oldest entry is forgotten, and that producer's next event is checked once more.
        self._shown: dict[tuple[str, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self.known) or bool(self._hidden)

    def refuse_events(self, topic: str, events: Iterable[IncomingEvent]) -> None:
        """Note events that were refused."""
        for event in events:
            if event.producer is not UNSET and event.sequence is not UNSET:
                self.known.open((topic, event.producer), event.sequence)

    def refuse_line(self, refusal: Refusal) -> None:
        """Note a ``pub`` line that was refused because it could not be read as an event."""
        if refusal.code == "too_long":
            self._hide(_EVERYWHERE)
        elif refusal.topic and b"sequence" in refusal.line:
            numbered = _numbered(refusal.line)
            if numbered is None:
                self._hide(refusal.topic)
            else:
                self.known.open((refusal.topic, numbered[0]), numbered[1])

    def check_sequence(self, topic: str, event: IncomingEvent, last: int | None) -> None:
        """Raise Refusal ``out_of_sequence`` if an event comes too early; `last` is its producer's last sequence."""
        producer, sequence = event.producer, event.sequence
        if producer is UNSET or sequence is UNSET or (last is not None and sequence <= last):
            return
        if last is not None:
            # Sequences that another connection has skipped can no longer come.
            self.known.skip((topic, producer), last)
        due = 0 if last is None else last + 1
        for hidden in (topic, _EVERYWHERE):
            if hidden not in self._hidden or self._shown.get((hidden, producer)) == self._hidden[hidden]:
                continue
            if sequence > (1 if last is None else due):
                self.known.wait_for((topic, producer), sequence)
                raise Refusal(
                    "out_of_sequence",
                    f"a line that could not be read may have been {producer}'s; send {due} next, or give it up:"
                    f" skip {topic} {producer} {due}",
                )
        self.known.check((topic, producer), topic, producer, sequence)

    def note_accepted(self, topic: str, event: IncomingEvent) -> None:
        """Note that an event was accepted."""
        if event.producer is not UNSET and event.sequence is not UNSET:
            self._show(topic, event.producer)
            self.known.note((topic, event.producer), event.sequence)

    def skip(self, topic: str, producer: str, sequence: int) -> None:
        """Give up the refused sequences up to `sequence`."""
        self._show(topic, producer)
        self.known.skip((topic, producer), sequence)

    def _hide(self, topic: str) -> None:
        self._lines += 1
        is_noted = topic in self._hidden or len(self._hidden) < GAPS_MAX
        self._hidden[topic if is_noted else _EVERYWHERE] = self._lines

    def _show(self, topic: str, producer: str) -> None:
        for hidden in (topic, _EVERYWHERE):
            line = self._hidden.get(hidden)
            if line is None or self._shown.get((hidden, producer)) == line:
                continue
            self._shown.pop((hidden, producer), None)
            while len(self._shown) >= GAPS_MAX:
                del self._shown[next(iter(self._shown))]
            self._shown[hidden, producer] = line


def _numbered(line: bytes) -> tuple[str, int] | None:
    """Return producer and sequence of a line that is JSON but not a valid event, None if it lacks either."""
    try:
        event: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    producer, sequence = (event.get("producer"), event.get("sequence")) if isinstance(event, dict) else (None, None)
    if not isinstance(producer, str) or not isinstance(sequence, int) or isinstance(sequence, bool) or sequence < 0:
        return None
    return producer, sequence
