"""Carry one topic to a central stream.

A session opens the engine, reads the mark, decides by the table of `bridge.opening` where to continue, and appends batches.
It ends at the first failure; the next one begins with the table again. The engine's position decides, never the memory of this
program. So a batch whose reply was lost is neither lost nor written twice.

The mark is read before the position, and the ends of the log after it. Otherwise another bridge on the same route could move
them between two reads, and the table would report a loss that did not happen.
"""

import secrets
import time
from collections.abc import Sequence
from typing import Final

import anyio
import msgspec

from bridge.ahead import ReadAhead, Run
from bridge.central import CentralLost, Destination, EngineUnreachable, Found, PositionMoved, Record, RecordRefused
from bridge.envelope import OutgoingEnvelope
from bridge.gaps import gaps
from bridge.local import LocalTopic, RouteMark
from bridge.marking import Marking
from bridge.opening import Local, MarkNote, Plan, Policy, Refused, decide
from bridge.rejected import RejectedEvents
from bridge.route import Route
from bridge.standing import Standing
from tweetwire import BrokerError, Client, Refusal
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.program import logger

__all__ = ["Outward"]

_IDENTITY_BYTES: Final = 16
_HOPELESS: Final = frozenset({"bad_name", "forbidden", "unauthenticated"})

_encode = msgspec.json.Encoder().encode


class Outward:
    """Carries the events of a route outwards until stopped.

    Args:
        route: The route.
        client: The broker.
        reader: Another connection to it, on which reads wait.
        destination: The engine.
        takes_new_identity: Whether to send the topic under a new identity if the position in the engine is not ours.
    """

    def __init__(
        self,
        route: Route,
        client: Client,
        reader: Client,
        destination: Destination,
        *,
        takes_new_identity: bool = False,
    ) -> None:
        options = route.options
        self.route = route
        self.standing = Standing(str(route), route.topic)
        self._destination = destination
        self._local = LocalTopic(client, reader, route.topic, route.mark)
        self._rejected = RejectedEvents(client, route.topic, route.mark)
        begin = options.begin
        self._policy = Policy(
            begin if isinstance(begin, int) else "latest" if begin == "latest" else "earliest",
            options.on_lost,
            options.on_gap,
            takes_new_identity,
        )
        self._is_stopping = False
        self._ahead: ReadAhead | None = None
        self._pausing = anyio.CancelScope()

    def stop(self) -> None:
        """End `run` after the batch that is being written, with its mark."""
        self._is_stopping = True
        if self._ahead is not None:
            self._ahead.stop()
        self._pausing.cancel()

    async def run(self) -> None:
        """Carry events until stopped. Raises StartError if a person has to change something."""
        try:
            while not self._is_stopping:
                try:
                    await self._session()
                except PositionMoved as moved:
                    logger().info("the position has moved, reading it again", route=str(self.route), reason=str(moved))
                    await self._pause(moved)
                except (EngineUnreachable, CentralLost) as error:
                    await self._pause(error)
                except BrokerError as error:
                    if isinstance(error, Refusal) and error.code in _HOPELESS:
                        raise StartError(f"the broker refuses the route {self.route}: {error}") from error
                    await self._pause(error)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                await self._destination.aclose()

    async def _pause(self, error: Exception) -> None:
        with anyio.CancelScope() as self._pausing:
            if not self._is_stopping:
                await self.standing.pause(error)

    async def _session(self) -> None:
        log = await self._local.log()
        mark = await self._local.mark()
        broker = self._local.identity()
        identity = broker if mark.note is None or mark.note.broker != broker else mark.note.identity
        found = await self._destination.open(identity, log)
        plan = await self._decide(found, broker, mark, log)
        if isinstance(plan, Refused) and plan.needs_identity:
            logger().warning("sending as another broker from now on", route=str(self.route), reason=plan.why)
            # If the folder has got a new identity since the mark was set, use that one.
            is_renamed = mark.note is not None and mark.note.broker != broker
            identity, mark = broker if is_renamed else secrets.token_urlsafe(_IDENTITY_BYTES), RouteMark()
            await self._local.unmark()
            found = await self._destination.open(identity, log)
            plan = await self._decide(found, broker, mark, log)
        if isinstance(plan, Refused):
            raise StartError(plan.why)
        self._report(plan)
        if found.position is not None and found.position > self.standing.position:
            self.standing.position = found.position
            self.standing.progressed()
        if plan.forgets:
            await self._destination.forget()
            found = await self._destination.open(identity, log)
        start = plan.start if plan.gap is None else plan.gap[0]
        note = MarkNote(broker, identity, found.centre, found.position, plan.first, start - 1, log)
        marking = Marking(self._local, mark.offset, note)
        await marking.store()
        self.standing.opened()
        await self._carry(start, self._envelope(identity, found), marking)

    async def _decide(self, found: Found, broker: str, mark: RouteMark, log: str) -> Plan | Refused:
        earliest, end = await self._local.ends()
        return decide(found, Local(broker, mark.offset, mark.note, earliest, end, log), self._policy, str(self.route))

    def _envelope(self, identity: str, found: Found) -> OutgoingEnvelope:
        options = self.route.options
        return OutgoingEnvelope(
            self.route.topic,
            identity,
            found.centre,
            kind=options.envelope,
            value=options.value,
            tombstones=options.tombstones,
        )

    def _report(self, plan: Plan) -> None:
        """Log and count what the table found."""
        if plan.lost:
            self.standing.lost += 1
            logger().error("the central copy was lost", route=str(self.route), reason=plan.lost, start=plan.start)
        if plan.resent is not None:
            first, last = plan.resent
            self.standing.resent += last - first + 1
            logger().warning(
                "the engine lost events, sending them again", route=str(self.route), first=first, last=last
            )

    async def _carry(self, start: int, envelope: OutgoingEnvelope, marking: Marking) -> None:
        """Read, append and mark at the same time, until stopped or until one of the three fails."""
        failure: Exception | None = None
        ahead = self._ahead = ReadAhead(self._local, envelope, self.route.options, start)
        if self._is_stopping:
            ahead.stop()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ahead.run)
            tasks.start_soon(marking.run)
            try:
                await self._append_all(start, ahead, envelope, marking)
            except (EngineUnreachable, CentralLost, PositionMoved, BrokerError, StartError) as error:
                failure = error
            tasks.cancel_scope.cancel()
        failure = failure or marking.failure or ahead.failure
        if not isinstance(failure, BrokerError):
            # Mark the written events even if the engine is unreachable now.
            await marking.store()
        if failure is not None:
            raise failure

    async def _append_all(self, expected: int, ahead: ReadAhead, envelope: OutgoingEnvelope, marking: Marking) -> None:
        while (part := await ahead.take()) is not None:
            if marking.failure is not None:
                return
            timestamp = time.time_ns() // 1_000_000
            for run in part.runs:
                events = run.events
                timestamp = events[0].timestamp
                self.standing.hold(timestamp)
                await self._append_gap(expected, events[0].offset - 1, timestamp, envelope, marking)
                await self._append(run, marking)
                expected = events[-1].offset + 1
            await self._append_gap(expected, part.next - 1, timestamp, envelope, marking)
            expected = max(expected, part.next)
            self.standing.release()
            self.standing.position = expected - 1
            self.standing.progressed()

    async def _append(self, run: Run, marking: Marking) -> None:
        events, records = run
        self.standing.left_out += len(events) - len(records)
        while records:
            try:
                await self._write(records, marking)
                break
            except RecordRefused as refused:
                await self._write([one for one in records if one.offset < refused.offset], marking)
                event = next(event for event in events if event.offset == refused.offset)
                await self._rejected.keep(str(event.offset), str(refused), _encode(event), event.id)
                self.standing.rejected += 1
                marking.excepted.append(refused.offset)
                records = [one for one in records if one.offset > refused.offset]
        marking.note_through(events[-1].offset)

    async def _write(self, records: Sequence[Record], marking: Marking) -> None:
        if records:
            await self._destination.append(records)
            self.standing.carried += len(records)
            marking.note_written(records[-1].offset)

    async def _append_gap(
        self, first: int, last: int, timestamp: int, envelope: OutgoingEnvelope, marking: Marking
    ) -> None:
        """Write a record for the missing events `first` to `last`: one for each reason. Without such events, do nothing."""
        if first > last:
            return
        earliest, _ = await self._local.ends()
        for gap in gaps(first, last, earliest):
            if self._policy.on_gap == "fail":
                raise StartError(f"{self.route}: {gap}; give on_gap=report to send a gap record and continue")
            logger().error("events are missing", route=str(self.route), reason=str(gap))
            await self._destination.append([envelope.gap(gap, timestamp)])
            self.standing.gaps += gap.last - gap.first + 1
            marking.note_written(gap.last)
