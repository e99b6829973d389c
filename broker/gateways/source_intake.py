"""The source's side: its bytes → lines in sequence."""

from operator import attrgetter
from typing import Final

import anyio
import structlog
from anyio.abc import ByteStream

from broker.core import Broker
from broker.errors import Refusal
from broker.gateways.sequencer import Sequencer
from broker.gateways.source_lines import SourceEvent, SourceLines, parse_source_lines
from broker.gateways.source_log import SourceLog
from broker.gateways.source_state import SOURCE_LOG
from broker.server import Server

__all__ = ["Intake"]

READ_BYTES: Final = 64 << 10
LINE_BYTES: Final = 8
"""No line is shorter, about; so many lines at most are in what is read."""
SLOW_READ_BYTES: Final = 1024
SLOW_PAUSE_S: Final = 0.02
GIVE_UP_FACTOR: Final = 4
GIVE_UP_HELD_MIN: Final = 100_000
QUESTION: Final = b"?"

_sequence = attrgetter("sequence")

logger = structlog.stdlib.get_logger()


class Intake:
    """Reads sources, one after the other.

    Up to `hold_max` events are held at full speed. Above, the source is read slowly, so that the missing one can still come
    and memory hardly grows. Only at a multiple of it the gap is given up, with an error in the log.
    """

    def __init__(self, server: Server, log: SourceLog, hold_max: int) -> None:
        self._server = server
        self._broker: Broker = server.broker
        self._log = log
        self._hold_max = hold_max
        self._give_up_held = max(GIVE_UP_FACTOR * hold_max, GIVE_UP_HELD_MIN)
        self._sequencer = Sequencer[SourceEvent](log.due)

    async def read(self, stream: ByteStream) -> None:
        """Take everything until the source's end. Raises what a stream raises that is broken."""
        lines = SourceLines()
        while True:
            await self._log.room()
            try:
                data = await stream.receive(await self._pace())
            except anyio.EndOfStream:
                break
            if self._take(lines.feed(data)):
                await stream.send(b"+OK %b next=%d\n" % (SOURCE_LOG.encode(), self._log.due))
        rest = lines.end()
        if rest:
            self._reject(Refusal("bad_event", "the source ended within this line", rest))
        self._end()

    async def _pace(self) -> int:
        """Return how many bytes may be read now; takes its time where too much is held."""
        room = self._hold_max - self._sequencer.held
        if room > 0:
            return min(READ_BYTES, max(SLOW_READ_BYTES, room * LINE_BYTES))
        await anyio.sleep(SLOW_PAUSE_S)
        return SLOW_READ_BYTES

    def _take(self, lines: list[bytes]) -> bool:
        """Take lines; returns whether one was the question."""
        is_asked = False
        events: list[SourceEvent] = []
        for event in parse_source_lines(lines):
            if isinstance(event, SourceEvent):
                events.append(event)
            elif event.line.rstrip(b"\r") == QUESTION:
                is_asked = True
            elif event.line.rstrip(b"\r"):
                self._reject(event)
        self._log.append(self._sequencer.push(zip(map(_sequence, events), events, strict=True)))
        if self._sequencer.held > self._give_up_held:
            self._give_up_gap()
        self._count()
        return is_asked

    def _give_up_gap(self) -> None:
        released, missing = self._sequencer.give_up_gap()
        self._broker.counts["event_source_given_up"] += len(missing)
        logger.error("gave up a gap", first=missing[0], last=missing[-1], held=len(released) + self._sequencer.held)
        self._log.append(released)

    def _end(self) -> None:
        """The source has ended: what is held goes out, and its end is stored."""
        released, missing = self._sequencer.release_all()
        if missing:
            self._broker.counts["event_source_given_up"] += missing
            logger.warning("the source ended with gaps", missing=missing)
        self._log.append(released)
        self._log.append_end()
        if not self._log.goes_on:
            repeated, self._sequencer = self._sequencer.repeated, Sequencer(1)
            self._sequencer.repeated = repeated
        self._count()

    def _reject(self, refusal: Refusal) -> None:
        self._broker.counts["event_source_rejected"] += 1
        self._broker.keep_rejected("event-source", refusal, self._server.now_ms())
        self._server.carry_out()

    def _count(self) -> None:
        self._broker.counts["event_source_held"] = self._sequencer.held
        self._broker.counts["event_source_repeated"] = self._sequencer.repeated
