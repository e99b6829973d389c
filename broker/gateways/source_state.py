"""What the event source's topics hold, and how the gateway stands again where it stood.

The topic `SOURCE_LOG` has the source's lines in the order of their sequences, and is the truth: the follow graph is what
its lines make of it. So that a start need not read all of it, the graph is kept now and then in `FOLLOWERS_LOG`, as of an
offset of the first one. What a kill leaves half of such a keeping is passed over for the one before.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from broker.errors import Refusal
from broker.events import IncomingEvent, StoredEvent, decode_stored
from broker.gateways.follow_graph import FollowGraph, recipients
from broker.gateways.source_lines import SourceEvent, parse_source_line
from broker.log import TopicLog

__all__ = [
    "FOLLOWERS_LOG",
    "PRODUCER",
    "SOURCE_LOG",
    "Missed",
    "SourceState",
    "end_event",
    "kept_graph",
    "line_event",
    "recover",
]

SOURCE_LOG: Final = "event_source"
FOLLOWERS_LOG: Final = "event_source.followers"
PRODUCER: Final = "event_source"

_END_ID: Final = "end"
_EDGES_MAX: Final = 20_000
_READ_BYTES: Final = 1 << 20


class Missed(NamedTuple):
    """A line that somebody who was away should have got: its place in `SOURCE_LOG`, and who."""

    offset: int
    line: bytes
    id: bytes


class SourceState(NamedTuple):
    """The graph behind the last stored line, the sequence that is due, and what may not have got to the inboxes."""

    graph: FollowGraph
    sequence: int
    missed: list[Missed]


class _Part(Struct):
    """One part of a kept graph: as of the line before offset `offset`, where `sequence` was due."""

    offset: int
    sequence: int
    part: int
    parts: int
    followers: dict[str, list[str]]


def line_event(event: SourceEvent) -> IncomingEvent:
    """Return the event that keeps a line. A line has no character that JSON would escape, but for its carriage return."""
    line = event.line
    text = b'"%b\\r"' % line[:-1] if line.endswith(b"\r") else b'"%b"' % line
    return IncomingEvent(id=str(event.sequence), msg=Raw(text))


def end_event() -> IncomingEvent:
    """Return the event that says: the source has ended."""
    return IncomingEvent(id=_END_ID, msg=Raw(b"null"))


def kept_graph(graph: FollowGraph, offset: int, sequence: int) -> list[IncomingEvent]:
    """Return the events that keep a graph as of the line before `offset`."""
    parts = list(graph.parts(_EDGES_MAX))
    kept = []
    for number, part in enumerate(parts):
        followers = {followed.decode(): [one.decode() for one in of] for followed, of in part.items()}
        body = _Part(offset, sequence, number, len(parts), followers)
        kept.append(IncomingEvent(id=f"{offset}-{number}", msg=Raw(msgspec.json.encode(body))))
    return kept


def recover(log: TopicLog, kept: TopicLog, *, routed: int | None, goes_on: bool) -> SourceState:
    """Read where the source stands.

    `routed` is the offset behind the last line whose inboxes are known to be stored; from there on, what is for one
    person or for followers is `missed`, and is in their inboxes once even where it was stored already. None: there are no
    inboxes. With `goes_on` a source's end does not begin the sequences anew.
    """
    graph, offset, sequence = _latest(kept, log.next if routed is None else min(routed, log.next))
    missed: list[Missed] = []
    for event in _events(log, offset):
        if event.id == _END_ID:
            sequence = sequence if goes_on else 1
            continue
        line = _line(event)
        if line is None:
            continue
        sequence = line.sequence + 1
        graph.apply(line)
        if routed is not None and event.offset >= routed:
            missed += [Missed(event.offset, line.line, one) for one in recipients(line, graph.followers) or ()]
    return SourceState(graph, sequence, missed)


def _latest(kept: TopicLog, offset_max: int) -> tuple[FollowGraph, int, int]:
    """Return the newest graph that is kept whole and not beyond `offset_max`, with its offset and sequence."""
    at = kept.next
    while at > kept.earliest:
        last = _part(kept, at - 1)
        if last is not None and last.part == last.parts - 1 and last.offset <= offset_max:
            parts = [_part(kept, at - last.parts + number) for number in range(last.parts)]
            whole = [part for part in parts if part is not None and part.offset == last.offset]
            if len(whole) == last.parts:
                return _graph(whole), last.offset, last.sequence
        at -= 1
    return FollowGraph(), 0, 1


def _graph(parts: list[_Part]) -> FollowGraph:
    graph = FollowGraph()
    for part in parts:
        for followed, followers in part.followers.items():
            graph.add(followed.encode(), [one.encode() for one in followers])
    return graph


def _part(kept: TopicLog, offset: int) -> _Part | None:
    lines, _, _ = kept.read(offset, 1, 1)
    try:
        return decode_stored(lines[0]).decode(_Part) if lines else None
    except msgspec.MsgspecError:
        return None


def _events(log: TopicLog, offset: int) -> Iterator[StoredEvent]:
    while offset < log.next:
        lines, offset, _ = log.read(offset, log.next - offset, _READ_BYTES)
        for line in lines:
            yield decode_stored(line)


def _line(event: StoredEvent) -> SourceEvent | None:
    """Return the source's line that an event keeps, None for what somebody else has put here."""
    try:
        return parse_source_line(event.decode(str).encode())
    except (msgspec.MsgspecError, Refusal):
        return None
