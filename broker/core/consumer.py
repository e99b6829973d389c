"""A connection's share in a subscription: what it has in flight and how much more it may have."""

from typing import TYPE_CHECKING

from broker.core.deadlines import Deadlines
from broker.protocol.event_lines import line_id

if TYPE_CHECKING:
    from broker.core.session import Session
    from broker.core.subscription import Subscription

__all__ = ["Consumer"]


class Consumer:
    """Always true: every offset in `in_flight` ({offset: slot}) was taken by this consumer and is not settled."""

    __slots__ = (
        "_departing",
        "_ids",
        "_taken",
        "_unsent",
        "deadlines",
        "fetching",
        "in_flight",
        "prefetch",
        "session",
        "subscription",
    )

    def __init__(self, session: "Session", subscription: "Subscription", prefetch: int) -> None:
        self.session = session
        self.subscription = subscription
        self.prefetch = prefetch
        self.in_flight: dict[int, int] = {}
        # Offsets that the client has by ``pubrec`` and is not done with; they count towards the prefetch. None for none,
        # which is what nearly all consumers have.
        self._taken: set[int] | None = None
        self.fetching = False
        self.deadlines = Deadlines()
        self._unsent: list[int] = []
        self._departing: list[int] = []
        # Made when the first ref is an id, since most consumers settle by offset.
        self._ids: dict[str, list[int]] | None = None

    @property
    def room(self) -> int:
        """How many more events may be in flight here now."""
        if self.fetching or not self.session.outbox.has_room:
            return 0
        return self.prefetch - self.held

    @property
    def held(self) -> int:
        """How many events count towards the prefetch."""
        return len(self.in_flight) + len(self._taken or ())

    def note_taken(self, offset: int) -> None:
        """The client has taken an event by ``pubrec``, which counts towards the prefetch until it is done with it."""
        if self._taken is None:
            self._taken = set()
        self._taken.add(offset)

    def note_done(self, offset: int) -> bool:
        """The client is done with what it took; returns whether that makes room here."""
        if self._taken is None or offset not in self._taken:
            return False
        self._taken.remove(offset)
        return True

    @property
    def knows_ids(self) -> bool:
        """Whether the ids of what is in flight are kept."""
        return self._ids is not None

    def deliver(self, offsets: list[int], lines: list[bytes]) -> None:
        """Put lines on their way; `offsets` are in flight already."""
        if self._ids is not None:
            self.note_ids(offsets, lines)
        self.session.outbox.events(lines)
        self._unsent += offsets
        if self.subscription.attempts:
            # One that failed before may stand in an earlier bucket yet, from its last time here.
            for offset in filter(self.subscription.attempts.__contains__, offsets):
                self.deadlines.suspend(offset)

    def depart(self) -> None:
        """What was delivered until now is being handed to the socket."""
        self._departing, self._unsent = self._unsent, []

    def sent(self, now_ms: int) -> None:
        """The bytes have left: now the time that the consumer has begins."""
        offsets, self._departing = self._departing, []
        if offsets:
            due = now_ms + self.subscription.policy.timeout_ms
            failed = self.subscription.attempts
            for offset in filter(failed.__contains__, offsets) if failed else ():
                self.deadlines.move(offset, due, self.in_flight)
            self.deadlines.add(offsets, due, self.in_flight)

    def extend(self, offset: int, now_ms: int) -> None:
        """Give an event in flight its whole time anew."""
        self.deadlines.move(offset, now_ms + self.subscription.policy.timeout_ms, self.in_flight)

    def note_ids(self, offsets: list[int], lines: list[bytes]) -> None:
        """Learn the ids of events in flight, so that `find` knows them."""
        if self._ids is None:
            self._ids = {}
        for offset, line in zip(offsets, lines, strict=True):
            self._ids.setdefault(line_id(line), []).append(offset)

    def find(self, ref: int | str) -> int | None:
        """Return the offset in flight that `ref` means, the oldest one where several have the id; None if there is none."""
        if isinstance(ref, int):
            return ref if ref in self.in_flight else None
        known = (self._ids or {}).get(ref, ())
        return min((offset for offset in known if offset in self.in_flight), default=None)

    def take_out(self, offsets: list[int]) -> dict[int, int]:
        """Take those of `offsets` that are in flight out of it; returns them with their slots."""
        in_flight = self.in_flight
        settled = {offset: in_flight.pop(offset) for offset in offsets if offset in in_flight}
        if self.deadlines.has_moved:
            for offset in settled:
                self.deadlines.forget(offset)
        self._trim_ids()
        return settled

    def _trim_ids(self) -> None:
        if self._ids is not None and len(self._ids) > 2 * len(self.in_flight) + 1024:
            self._forget_settled_ids(self._ids)

    def _forget_settled_ids(self, ids: dict[str, list[int]]) -> None:
        kept = {ref: [offset for offset in offsets if offset in self.in_flight] for ref, offsets in ids.items()}
        self._ids = {ref: offsets for ref, offsets in kept.items() if offsets}
