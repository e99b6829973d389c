"""Read a topic ahead of the engine, and make the records while the engine writes.

Pages that the engine has not taken yet are merged. So the next write has all events that came during the last one, and an event
waits for two writes at most, however slow the engine is.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import anyio

from bridge.central import PositionMoved, Record
from bridge.envelope import OutgoingEnvelope
from bridge.gaps import unbroken
from bridge.local import LocalTopic
from bridge.options import Options
from tweetwire import BrokerError, StoredEvent

__all__ = ["Prepared", "ReadAhead", "Run"]

_WAIT_S: Final = 1.0
"""The longest wait of a read. If a session ends during a read, the first read of the next session waits for that reply."""


class Run(NamedTuple):
    """Events whose offsets follow each other, and their records. An event whose path has the stream has no record."""

    events: Sequence[StoredEvent]
    records: list[Record]


class Prepared(NamedTuple):
    """A part of the topic that is ready to be written.

    Attributes:
        runs: The events and their records, in order.
        next: The offset after the part. Events before it that are in no run are missing in the log.
        length: The number of events.
        size: The bytes of their messages.
    """

    runs: list[Run]
    next: int
    length: int
    size: int


class ReadAhead:
    """Holds less than two batches of a topic, from the offset `start` on.

    Attributes:
        failure: The error that ended `run`, if there was one.
    """

    def __init__(self, local: LocalTopic, envelope: OutgoingEnvelope, options: Options, start: int) -> None:
        self.failure: Exception | None = None
        self._local = local
        self._envelope = envelope
        self._options = options
        self._start = start
        self._held: deque[Prepared] = deque()
        self._count = 0
        self._size = 0
        self._is_stopping = False
        self._is_over = False
        self._has_changed = anyio.Event()
        self._reading = anyio.CancelScope()

    def stop(self) -> None:
        """End `run`. The parts that were read can still be taken."""
        self._is_stopping = True
        self._reading.cancel()

    async def run(self) -> None:
        """Read until stopped, or until the broker fails."""
        options = self._options
        try:
            with self._reading:
                while not self._is_stopping:
                    while self._is_full:
                        await self._change()
                    page = await self._local.read(
                        self._start, limit=options.batch, bytes_max=options.batch_bytes, wait_s=_WAIT_S
                    )
                    # A page without events can still pass over damaged lines.
                    if page.events or page.next > self._start:
                        self._hold(page.events, page.next)
                    self._start = page.next
                    if options.linger_s and len(page.events) < options.batch:
                        await anyio.sleep(options.linger_s)
        except (BrokerError, PositionMoved) as error:
            self.failure = error
        finally:
            self._is_over = True
            self._has_changed.set()

    async def take(self) -> Prepared | None:
        """Wait for the next part, of at most one batch, and return it. Returns None once `run` has ended."""
        while not self._held:
            if self._is_over:
                return None
            await self._change()
        taken = [self._held.popleft()]
        count, size = taken[0].length, taken[0].size
        while self._held:
            count, size = count + self._held[0].length, size + self._held[0].size
            if count > self._options.batch or size > self._options.batch_bytes:
                break
            taken.append(self._held.popleft())
        self._count -= sum(one.length for one in taken)
        self._size -= sum(one.size for one in taken)
        self._has_changed.set()
        return taken[0] if len(taken) == 1 else _merged(taken)

    @property
    def _is_full(self) -> bool:
        return self._count >= self._options.batch or self._size >= self._options.batch_bytes

    async def _change(self) -> None:
        self._has_changed = anyio.Event()
        await self._has_changed.wait()

    def _hold(self, events: Sequence[StoredEvent], after: int) -> None:
        runs = [Run(run, self._envelope.records(run)) for run in unbroken(events)]
        held = Prepared(runs, after, len(events), sum(len(bytes(event.msg)) for event in events))
        self._held.append(held)
        self._count += held.length
        self._size += held.size
        self._has_changed.set()


def _merged(parts: Sequence[Prepared]) -> Prepared:
    """Return one part of several, in which runs that follow each other are one run."""
    runs: list[Run] = []
    events: list[StoredEvent] = []
    records: list[Record] = []
    for run in (run for part in parts for run in part.runs):
        if not runs or events[-1].offset + 1 != run.events[0].offset:
            events, records = [], []
            runs.append(Run(events, records))
        events += run.events
        records += run.records
    return Prepared(runs, parts[-1].next, sum(one.length for one in parts), sum(one.size for one in parts))
