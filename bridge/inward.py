"""Carry one central stream to a topic.

The position lies in the broker, in the write of each event: the checkpoint of the route's producer is the engine's place of the
newest event. The sequences are 1, 2, 3 … in the order of the stream, and only events of the topic have one. So a second bridge
on the same route sends the same event with the same sequence, and the broker stores it once. A receipt that reports a duplicate
ends the session. The next session begins after the place that the broker has.

Entries that are left out make no event, so their places would not be stored. Another producer, whose name ends with ``.seen``,
keeps such a place as its checkpoint, with the sequence of the newest event. The place counts only while that event is the
newest one.
"""

from collections.abc import Sequence
from typing import Final

import anyio
from msgspec import structs

from bridge.central import Arrival, EngineUnreachable, EntriesRemoved, NotThereYet, Origin, Source
from bridge.envelope import IncomingEnvelope
from bridge.place import Place
from bridge.rejected import RejectedEvents
from bridge.route import Route
from bridge.standing import Standing
from tweetwire import BrokerError, Client, Event, ProducerPosition, Publisher, Receipt, Refusal
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.program import logger

__all__ = ["Inward"]

_WAIT_S: Final = 5.0
_CAREFUL: Final = 1000
"""The number of events that are published one by one after a refusal, since the refused one is among them."""
_SEEN_EVERY: Final = 1000
"""After this many entries in a row that were left out, their place is stored."""
_HOPELESS: Final = frozenset({"bad_name", "forbidden", "unauthenticated"})
_WINDOW: Final = 10_000


class _Repeated(Exception):
    """The broker had an event already: another bridge carries the same route, or a reply was lost."""


class Inward:
    """Carries the entries of a route inwards until stopped.

    Args:
        route: The route.
        client: The broker.
        origin: The engine.
        standing: The figures to count in, if several tasks carry one route.
    """

    def __init__(self, route: Route, client: Client, origin: Origin, standing: Standing | None = None) -> None:
        self.route = route
        self.standing = standing or Standing(str(route), route.topic)
        self._client = client
        self._origin = origin
        self._rejected = RejectedEvents(client, route.topic, route.mark)
        self._is_stopping = False
        self._work = anyio.CancelScope()
        self._sequence = 0
        self._place = Place("", "")
        self._seen = ""
        self._careful = 0
        self._duplicates = 0
        self._unstored = 0

    def stop(self) -> None:
        """End `run` as soon as all published events are confirmed."""
        self._is_stopping = True
        self._work.cancel()

    async def run(self) -> None:
        """Carry entries until stopped. Raises StartError if a person has to change something."""
        try:
            while not self._is_stopping:
                try:
                    await self._session()
                except _Repeated:
                    logger().info("the broker has these events, reading the position", route=str(self.route))
                except EngineUnreachable as error:
                    await self._pause(error)
                except BrokerError as error:
                    if isinstance(error, Refusal):
                        if error.code in _HOPELESS:
                            raise StartError(f"the broker refuses the route {self.route}: {error}") from error
                        self._careful = 0 if error.is_retryable else _CAREFUL
                    await self._pause(error)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                await self._origin.aclose()

    async def _pause(self, error: Exception) -> None:
        with anyio.CancelScope() as self._work:
            if not self._is_stopping:
                await self.standing.pause(error, self.route.mark)

    async def _session(self) -> None:
        """Publish from the stored place on, until `stop` or until an error."""
        self._duplicates = 0
        publisher = self._client.publisher(self.route.topic, window=_WINDOW, on_confirm=self._note_receipt)
        # The work may be cancelled anywhere, since the broker has the position. The end of the block waits for confirmations.
        async with publisher:
            with anyio.CancelScope() as self._work:
                if not self._is_stopping:
                    await self._carry(publisher)

    async def _carry(self, publisher: Publisher) -> None:
        last = await self._last(self.route.mark)
        seen = await self._last(f"{self.route.mark}.seen")
        self._sequence = 0 if last is None or last.sequence is None else last.sequence
        place = await self._open(last, seen)
        identity = self._client.broker_identity
        if identity is None:
            raise StartError("the broker has no identity; the bridge needs a newer one")
        envelope = IncomingEnvelope(
            identity, place.centre, self.route.stream_at(identity), value=self.route.options.value
        )
        self.standing.opened(self.route.mark)
        self._place, self._seen = place, place.place
        while True:
            try:
                arrivals = await self._origin.read(self._seen, _WAIT_S)
            except EntriesRemoved as removed:
                await self._publish_gap(publisher, removed.after, removed.before)
                continue
            if self._duplicates:
                raise _Repeated
            if arrivals:
                await self._take(publisher, envelope, arrivals)
            if len(arrivals) < self.route.options.batch:
                # There is time to wait for the confirmations, and a refusal must not wait for the next entry.
                await publisher.flush()
            await self._store_seen(publisher, is_idle=not arrivals)

    async def _open(self, last: ProducerPosition | None, seen: ProducerPosition | None) -> Place:
        """Return the place to continue after, as the stream and the options of the route say."""
        newest, hint = self._place_of(last), self._place_of(seen)
        if hint.sequence == self._sequence:
            newest = hint
        source = await self._origin.open(newest.place, newest.centre, is_exact=newest.is_exact)
        if newest.place and source.is_replaced:
            return self._after_loss(newest, source)
        if newest.place:
            return Place(source.centre, newest.place, newest.is_exact)
        begin = Place(source.centre, self._begin(source))
        if begin.place:
            # Until an event is taken, this place is the only one that a restart can continue after.
            await self._save_seen(begin)
        return begin

    def _place_of(self, position: ProducerPosition | None) -> Place:
        if position is None or not position.checkpoint:
            return Place("", "")
        try:
            return Place.parse(position.checkpoint)
        except ValueError as error:
            raise StartError(
                f"the checkpoint of {self.route.mark} on topic {self.route.topic} was not written by this program; "
                "name the route with ?as=NAME"
            ) from error

    def _after_loss(self, newest: Place, source: Source) -> Place:
        why = f"{self.route}: the stream was deleted or made again, and the broker has its entries up to {newest.place}"
        if self.route.options.on_lost == "fail":
            raise StartError(
                f"{why}; give on_lost=resend to take the new stream from its start, or on_lost=skip to take what comes next"
            )
        if not source.centre:
            raise NotThereYet(f"there is no stream {self.route.stream}")
        self.standing.lost += 1
        logger().error("the central stream is another one", route=str(self.route), place=newest.place)
        return Place(source.centre, "" if self.route.options.on_lost == "resend" else source.last)

    def _begin(self, source: Source) -> str:
        begin = str(self.route.options.begin)
        if begin == "earliest":
            return ""
        return source.last if begin == "latest" else self._origin.check_place(begin)

    async def _take(self, publisher: Publisher, envelope: IncomingEnvelope, arrivals: Sequence[Arrival]) -> None:
        """Publish the events of entries."""
        events: list[Event] = []
        self.standing.hold(arrivals[0].timestamp, self.route.mark)
        for arrival in arrivals:
            event = envelope.event(arrival)
            if event is None:
                self.standing.left_out += 1
                self._unstored += 1
                continue
            place = Place(self._place.centre, arrival.place)
            self._number(event, place)
            if self._careful:
                self._careful -= 1
                await self._publish_singly(publisher, event, place, arrival)
            else:
                events.append(event)
            self._place = place
        try:
            await publisher.publish_many(events)
        except ValueError as error:
            raise Refusal("bad_event", str(error)) from error
        self._seen = arrivals[-1].place
        self.standing.release(self.route.mark)
        self.standing.progressed()

    def _number(self, event: Event, place: Place) -> None:
        self._sequence += 1
        event.producer = self.route.mark
        event.sequence = self._sequence
        event.checkpoint = place.text()

    async def _publish_singly(self, publisher: Publisher, event: Event, place: Place, arrival: Arrival) -> None:
        """Publish one event; if the broker will never accept it, keep it and give its sequence up."""
        try:
            await publisher.publish(event)
            await publisher.flush()
        except (Refusal, ValueError) as refusal:
            if isinstance(refusal, Refusal) and refusal.is_retryable:
                raise
            await self._rejected.keep(place.text(), str(refusal), arrival.value or b"", event.id)
            self.standing.rejected += 1
            if isinstance(refusal, Refusal):
                await self._client.skip(self.route.topic, self.route.mark, self._sequence)
            # The next event takes its sequence, as it does at another bridge.
            self._sequence -= 1
            await self._save_seen(place)

    async def _publish_gap(self, publisher: Publisher, after: str, before: str) -> None:
        """Publish an event that shows between which places entries may be missing."""
        text = f"entries after {after} may have been removed before they were taken; the next one is {before}"
        if self.route.options.on_gap == "fail":
            raise StartError(f"{self.route}: {text}; give on_gap=report to publish a gap event and continue")
        logger().error(
            "entries may have been removed before they were taken", route=str(self.route), after=after, before=before
        )
        place = Place(self._place.centre, after, is_exact=False)
        event = Event(
            id=f"gap-{after}-{before}", msg={"gap": {"stream": self.route.address, "after": after, "before": before}}
        )
        self._number(event, place)
        await publisher.publish(event)
        self.standing.gaps += 1

    async def _store_seen(self, publisher: Publisher, *, is_idle: bool) -> None:
        """Store how far entries were left out, once everything before is confirmed."""
        if self._seen == self._place.place or not (is_idle or self._unstored >= _SEEN_EVERY):
            return
        await publisher.flush()
        self._place = Place(self._place.centre, self._seen)
        await self._save_seen(self._place)

    async def _save_seen(self, place: Place) -> None:
        self._unstored = 0
        text = structs.replace(place, sequence=self._sequence).text()
        await self._client.checkpoint(self.route.topic, f"{self.route.mark}.seen", text)

    async def _last(self, producer: str) -> ProducerPosition | None:
        try:
            return await self._client.last(self.route.topic, producer)
        except Refusal as refusal:
            if refusal.code == "unknown_topic":
                return None
            raise

    def _note_receipt(self, receipt: Receipt) -> None:
        if not receipt.is_duplicate:
            self.standing.carried += receipt.count
            return
        self.standing.repeated += receipt.count
        self._duplicates += 1
