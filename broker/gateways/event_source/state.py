"""The contents of the event source's topics, and the recovery of the gateway's state from them.

The topic `SOURCE_LOG` holds the source's lines in sequence. It is the only source of the state: the follow graph is
computed from its lines. From time to time the graph is stored in `FOLLOWERS_LOG`, together with the offset in `SOURCE_LOG`
that it belongs to. So a start reads only the lines after that offset. If a kill left a stored graph incomplete, a start
uses the previous one.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from broker.gateways.event_source.follow_graph import FollowGraph, recipients
from broker.gateways.event_source.lines import SourceEvent, parse_source_line
from broker.log import TopicLog
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.events import IncomingEvent, StoredEvent, decode_stored

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
    """A line that may be missing in an inbox: its offset in `SOURCE_LOG`, and the id of the inbox's client."""

    offset: int
    line: bytes
    id: bytes


class SourceState(NamedTuple):
    """The graph after the last stored line, the next sequence, and the lines that may be missing in inboxes."""

    graph: FollowGraph
    sequence: int
    missed: list[Missed]


class _Part(Struct):
    """One part of a stored graph. The graph belongs to the state before offset `offset`, where `sequence` was next."""

    offset: int
    sequence: int
    part: int
    parts: int
    followers: dict[str, list[str]]


def line_event(event: SourceEvent) -> IncomingEvent:
    """Return the event that stores a line. The only character of a line that JSON escapes is its carriage return."""
    line = event.line
    text = b'"%b\\r"' % line[:-1] if line.endswith(b"\r") else b'"%b"' % line
    return IncomingEvent(id=str(event.sequence), msg=Raw(text))


def end_event() -> IncomingEvent:
    """Return the event that stores the end of the source."""
    return IncomingEvent(id=_END_ID, msg=Raw(b"null"))


def kept_graph(graph: FollowGraph, offset: int, sequence: int) -> list[IncomingEvent]:
    """Return the events that store the graph before `offset`, where `sequence` is next."""
    parts = list(graph.parts(_EDGES_MAX))
    kept = []
    for number, part in enumerate(parts):
        followers = {followed.decode(): [one.decode() for one in of] for followed, of in part.items()}
        body = _Part(offset, sequence, number, len(parts), followers)
        kept.append(IncomingEvent(id=f"{offset}-{number}", msg=Raw(msgspec.json.encode(body))))
    return kept


def recover(log: TopicLog, kept: TopicLog, *, routed: int | None, goes_on: bool) -> SourceState:
    """Read the state of the source from its topics.

    Args:
        log: The topic `SOURCE_LOG`.
        kept: The topic `FOLLOWERS_LOG`.
        routed: The offset up to which the inboxes are known to be complete, None if there are no inboxes. Later lines,
            except broadcasts, are returned as `missed`. The inboxes drop those that they already hold.
        goes_on: Whether the sequences continue after the end of a source, instead of beginning at 1 again.
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
    """Return the newest complete stored graph up to `offset_max`, with its offset and the next sequence."""
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
    """Return the source's line in an event, None if another program published the event."""
    try:
        return parse_source_line(event.decode(str).encode())
    except (msgspec.MsgspecError, Refusal):
        return None
