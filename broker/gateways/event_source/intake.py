"""The intake: reads the bytes of a source and stores its lines in sequence."""

from operator import attrgetter
from typing import Final

import anyio
import structlog

from broker.core import PartCounts
from broker.gateways.event_source.callers import Caller
from broker.gateways.event_source.lines import SourceEvent, SourceLines, parse_source_lines
from broker.gateways.event_source.log import SourceLog
from broker.gateways.event_source.sequencer import Sequencer
from broker.gateways.event_source.state import SOURCE_LOG
from broker.server import Server
from tweetwire.protocol.errors import Refusal

__all__ = ["Intake"]

READ_BYTES: Final = 64 << 10
LINE_BYTES: Final = 8
"""The approximate length of the shortest line. It limits how many lines one read can bring."""
SLOW_READ_BYTES: Final = 1024
SLOW_PAUSE_S: Final = 0.02
GIVE_UP_FACTOR: Final = 4
GIVE_UP_HELD_MIN: Final = 100_000
QUESTION: Final = b"?"

_sequence = attrgetter("sequence")

logger = structlog.stdlib.get_logger()


class Intake:
    """Reads one source after the other.

    Events that arrive too early are held. Up to `hold_max` events, the source is read at full speed. Above, it is read
    slowly, so that the missing event can still arrive and memory grows slowly. At a multiple of `hold_max`, the intake
    gives up the missing events and logs an error.
    """

    def __init__(self, server: Server, log: SourceLog, counts: PartCounts, hold_max: int) -> None:
        self._server = server
        self._log = log
        self._counts = counts
        self._hold_max = hold_max
        self._give_up_held = max(GIVE_UP_FACTOR * hold_max, GIVE_UP_HELD_MIN)
        self._sequencer = Sequencer[SourceEvent](log.due)

    async def read(self, stream: Caller) -> None:
        """Take all lines until the source ends. Raises the errors of a broken stream."""
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
        """Return how many bytes may be read now, after a pause if too many events are held."""
        room = self._hold_max - self._sequencer.held
        if room > 0:
            return min(READ_BYTES, max(SLOW_READ_BYTES, room * LINE_BYTES))
        await anyio.sleep(SLOW_PAUSE_S)
        return SLOW_READ_BYTES

    def _take(self, lines: list[bytes]) -> bool:
        """Take lines. Returns whether one of them was the question ``?``."""
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
        self._counts.add("given_up", len(missing))
        logger.error(
            "gave up missing events of the source",
            first=missing[0],
            last=missing[-1],
            held=len(released) + self._sequencer.held,
        )
        self._log.append(released)

    def _end(self) -> None:
        """Store the held events and the end of the source."""
        released, missing = self._sequencer.release_all()
        if missing:
            self._counts.add("given_up", missing)
            logger.warning("the source ended with missing events", missing=missing)
        self._log.append(released)
        self._log.append_end()
        if not self._log.goes_on:
            repeated, self._sequencer = self._sequencer.repeated, Sequencer(1)
            self._sequencer.repeated = repeated
        self._count()

    def _reject(self, refusal: Refusal) -> None:
        self._counts.add("rejected")
        self._server.broker.keep_rejected("event-source", refusal, self._server.now_ms())
        self._server.do_work()

    def _count(self) -> None:
        self._counts.set_to("held", self._sequencer.held)
        self._counts.set_to("repeated", self._sequencer.repeated)
