"""``python -m bridge verify ROUTE…`` compares topics with their central copies: missing, doubled, out of order, changed."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from hashlib import blake2b
from typing import Annotated, Literal

import anyio
import msgspec
from pydantic import Field, field_validator
from pydantic_settings import CliPositionalArg

from bridge.central import Arrival, EngineUnreachable, Origin
from bridge.comparing import Comparison, Differences
from bridge.ends import destination_of, origin_of, partitions_of
from bridge.envelope import IncomingEnvelope, OutgoingEnvelope, origination_of
from bridge.local import LocalTopic
from bridge.opening import MarkNote
from bridge.place import Place
from bridge.rejected import REJECTED_TOPIC, rejected_producer
from bridge.route import Route, parse_in, parse_out
from bridge.settings import EngineSettings
from tweetwire import Client, Refusal, StoredEvent
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.kinds import Metavar
from tweetwire.runtime.program import settings_config

__all__ = ["VerifySettings", "parse_route", "verify"]

_PAGE = 5000


def parse_route(text: str) -> Route:
    """Return a route outwards or inwards: an address is on one of its sides. Raises ValueError."""
    return parse_in(text) if "://" in text.partition("->")[0] else parse_out(text)


class VerifySettings(EngineSettings):
    """Compares topics with their central copies. The status is 0 only if no event is missing, doubled, misplaced or changed.

    Only the part that the route has already carried is compared, so the bridge may run meanwhile.
    """

    model_config = settings_config("python -m bridge verify")

    route: CliPositionalArg[list[Annotated[str, Metavar("ROUTE")]]] = Field(
        description="route to compare, as it was given to --out or --in"
    )
    report: Literal["text", "json"] = Field("text", description="one line for each route, or JSON")

    @field_validator("route")
    @classmethod
    def _are_routes(cls, texts: list[str]) -> list[str]:
        for text in texts:
            parse_route(text)
        return texts


async def verify(settings: VerifySettings, stop: anyio.Event) -> int:
    """Compare each route and print what differs.

    Returns:
        The exit status: 0 if all copies are clean, else 1.

    Raises:
        StartError: A server does not answer, or the route has not carried anything yet.
    """
    found: dict[str, Differences] = {}
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(settings.login().client("verify"))
        for text in settings.route:
            route = parse_route(text)
            compare = _compare_out if route.direction == "out" else _compare_in
            try:
                found[str(route)] = await compare(route, settings, client)
            except EngineUnreachable as error:
                raise StartError(f"{route}: {error}") from error
            except Refusal as refusal:
                raise StartError(f"{route}: {settings.login().reason(refusal)}") from refusal
    if settings.report == "json":
        print(msgspec.json.encode(found).decode())
    else:
        for name, differences in found.items():
            print(_line(name, differences))
    sys.stdout.flush()
    return int(not all(differences.is_clean for differences in found.values()))


def _line(name: str, found: Differences) -> str:
    counts = (
        f"{found.compared} compared, {found.missing} missing, {found.doubled} doubled, {found.out_of_order} out of order, "
        f"{found.changed} changed, {found.reported_gaps} in reported gaps"
    )
    examples = f" ({', '.join(found.examples)})" if found.examples else ""
    return f"{'clean' if found.is_clean else 'NOT CLEAN'}: {name}: {counts}{examples}"


async def _compare_out(route: Route, settings: VerifySettings, client: Client) -> Differences:
    """Compare the events of the topic that are done with the entries of the stream that came from them."""
    marks = [mark for mark in await client.marks(route.topic) if mark.name == route.mark]
    note = MarkNote.parse(marks[0].checkpoint) if marks else None
    if note is None:
        raise StartError(f"topic {route.topic} has no mark {route.mark}, so the route has not carried anything yet")
    identity = client.broker_identity or ""
    destination = destination_of(route, settings, identity)
    options = route.options
    envelope = OutgoingEnvelope(
        route.topic,
        note.identity,
        note.centre,
        kind=options.envelope,
        value=options.value,
        tombstones=options.tombstones,
    )
    end = note.through + 1
    earliest, _ = await LocalTopic(client, client, route.topic, route.mark).ends()
    events = _Events(client, route.topic, max(earliest, note.begin), end)
    comparison, excepted = Comparison(), frozenset(marks[0].excepted)

    def expect(event: StoredEvent) -> None:
        record = envelope.record(event)
        if record is not None and event.offset not in excepted:
            pairs = zip(record.fields[::2], record.fields[1::2], strict=True)
            comparison.expect(event.offset, _digest(record.value, dict(pairs)))

    is_first, first = bool(options.trim), events.first
    try:
        async for arrivals in destination.entries():
            for arrival in arrivals:
                began = origination_of(arrival)
                if began is None or (began.broker, began.topic) != (note.identity, route.topic):
                    comparison.differences.foreign += 1
                elif began.gap_first is not None:
                    comparison.differences.reported_gaps += began.offset - began.gap_first + 1
                elif first <= began.offset < end:
                    await events.read_through(began.offset, expect)
                    if is_first or arrival.follows_removed:
                        # Entries that were removed by a limit of the stream are not missing.
                        first, is_first = began.offset, False
                        comparison.drop_before(first)
                    comparison.find(began.offset, _digest(arrival.value, dict(arrival.fields)), arrival.lane)
    finally:
        await destination.aclose()
    await events.read_through(end - 1, expect)
    return comparison.end()


async def _compare_in(route: Route, settings: VerifySettings, client: Client) -> Differences:
    """Compare the entries of the stream, or of each of its partitions, with the events of the topic that came from them."""
    identity = client.broker_identity or ""
    partitions = partitions_of(route, settings, identity)
    if partitions is None:
        return await _compare_origin(route, origin_of(route, settings, identity), client)
    try:
        routes = [route.of_partition(one, is_new=True) for one in range(await partitions.count())]
        begun = [one for one in routes if await client.last(route.topic, one.mark) is not None]
        found = [await _compare_origin(one, partitions.origin(routes.index(one)), client) for one in begun]
    finally:
        await partitions.aclose()
    if not found:
        raise StartError(
            f"topic {route.topic} has no producer {route.mark}.0, so the route has not carried anything yet"
        )
    return sum(found[1:], found[0])


async def _compare_origin(route: Route, origin: Origin, client: Client) -> Differences:
    identity = client.broker_identity or ""
    last = await client.last(route.topic, route.mark)
    if last is None or not last.checkpoint:
        raise StartError(f"topic {route.topic} has no producer {route.mark}, so the route has not carried anything yet")
    place = Place.parse(last.checkpoint)
    envelope = IncomingEnvelope(identity, place.centre, route.stream_at(identity), value=route.options.value)
    rejected = await _rejected_places(client, route)
    comparison = Comparison()
    topic = _Events(client, route.topic, (await LocalTopic(client, client, route.topic, "").ends())[0], last.offset + 1)
    entries = origin.entries()
    is_first = True
    is_over = False

    async def expect_through(wanted: str) -> None:
        """Read entries up to the place `wanted`, but not beyond the last entry that the route has taken."""
        nonlocal is_over
        while not is_over and not comparison.expects(wanted):
            arrivals: list[Arrival] | None = await anext(entries, None)
            if arrivals is None:
                is_over = True
                return
            for arrival in arrivals:
                event = None if is_over or arrival.place in rejected else envelope.event(arrival)
                if event is not None:
                    comparison.expect(arrival.place, _digest(None, {"id": event.id}))
                is_over = is_over or arrival.place == place.place

    try:
        async for event in topic.all():
            if event.producer != route.mark or not isinstance(event.checkpoint, str):
                continue
            at = Place.parse(event.checkpoint)
            if not at.is_exact:
                comparison.differences.reported_gaps += 1
                continue
            await expect_through(at.place)
            if is_first:
                # The topic may have forgotten older events, and the route may have begun later.
                comparison.drop_before(at.place)
                is_first = False
            comparison.find(at.place, _digest(None, {"id": event.id}))
    finally:
        await origin.aclose()
    return comparison.end()


async def _rejected_places(client: Client, route: Route) -> set[str]:
    """Return the places of the entries that the broker will never accept."""
    if all(info.topic != REJECTED_TOPIC for info in await client.topics()):
        return set()
    producer = rejected_producer(route.topic, route.mark)
    first, end = await LocalTopic(client, client, REJECTED_TOPIC, "").ends()
    events = _Events(client, REJECTED_TOPIC, first, end)
    return {
        Place.parse(event.checkpoint).place
        async for event in events.all()
        if event.producer == producer and isinstance(event.checkpoint, str)
    }


class _Events:
    """Reads the events of a topic from `first` to `end` - 1 in order."""

    def __init__(self, client: Client, topic: str, first: int, end: int) -> None:
        self.first = first
        self._client = client
        self._topic = topic
        self._next = first
        self._end = end

    async def read_through(self, offset: int, take: Callable[[StoredEvent], object]) -> None:
        """Hand over the events that were not read yet, at least up to `offset`."""
        while self._next <= min(offset, self._end - 1):
            page = await self._client.read(self._topic, self._next, limit=_PAGE, bytes_max=4 << 20)
            for event in page.events:
                if event.offset < self._end:
                    take(event)
            if page.next <= self._next:
                return
            self._next = page.next

    async def all(self) -> AsyncIterator[StoredEvent]:
        """Yield all events."""
        while self._next < self._end:
            found: list[StoredEvent] = []
            await self.read_through(self._next, found.append)
            if not found:
                return
            for event in found:
                yield event


def _digest(value: bytes | None, fields: dict[str, str]) -> bytes:
    text = msgspec.json.encode((None if value is None else value.decode(errors="replace"), sorted(fields.items())))
    return blake2b(text, digest_size=8).digest()
