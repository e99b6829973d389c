"""The unsettled events of subscriptions, as one JSON document.

The command asks the broker for the offsets of unsettled events, and reads these events from the log. Both are read in pages, so
that neither side holds more than a page. An event is exported if it was unsettled when its page was requested.
"""

from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct

from tweetwire.cli.report import answer
from tweetwire.protocol.errors import Refusal

if TYPE_CHECKING:
    from tweetwire.client.blocking import SyncClient

__all__ = ["chosen_subscriptions", "write_unsettled"]

PAGE: Final = 10_000
GAP: Final = 100
"""Two runs of offsets are read together if the second begins at most this many offsets after the end of the first."""


class _Exported(Struct):
    timestamp: int
    priority: int
    msg: Raw
    id: str


class _Read(_Exported):
    offset: int


_decode = msgspec.json.Decoder(_Read).decode
_json = msgspec.json.Encoder().encode


def chosen_subscriptions(client: "SyncClient", topic: str | None, name: str | None) -> dict[str, list[str]]:
    """Return the topics of each chosen subscription. None chooses all topics, or all subscriptions.

    Raises Refusal if the topic does not exist, or if no chosen topic has the subscription.
    """
    topics = client.stats()["topics"]
    if topic is not None and topic not in topics:
        raise Refusal("unknown_topic", f"there is no topic {topic}")
    chosen: dict[str, list[str]] = {}
    for one, report in topics.items():
        for subscription in report["subscriptions"]:
            if topic in {None, one} and name in {None, subscription}:
                chosen.setdefault(subscription, []).append(one)
    if name is not None and not chosen:
        raise Refusal("not_subscribed", f"{topic or 'no topic'} has a subscription {name}")
    return chosen


def write_unsettled(
    client: "SyncClient", chosen: dict[str, list[str]], file: IO[bytes], note: Callable[[], None]
) -> None:
    """Write the JSON document piece by piece, each event on its own line, and call `note` after each event."""
    file.write(b"{")
    for number, (name, topics) in enumerate(sorted(chosen.items())):
        file.write(b"%b\n%b:{" % (b"," if number else b"", _json(name)))
        for place, topic in enumerate(topics):
            file.write(b"%b\n %b:[" % (b"," if place else b"", _json(topic)))
            for at, event in enumerate(_unsettled(client, topic, name)):
                file.write(b"%b\n  %b" % (b"," if at else b"", _json(event)))
                note()
            file.write(b"]")
        file.write(b"}")
    file.write(b"\n}\n")


def _unsettled(client: "SyncClient", topic: str, name: str) -> Iterator[_Exported]:
    start: int | None = 0
    while start is not None:
        try:
            page = answer(client.command(f"unsettled {topic} as={name} from={start} limit={PAGE}"), 3)
        except Refusal as refusal:
            if refusal.code == "not_subscribed":
                return  # The subscription ended while others were written, so it has no unsettled events now.
            raise
        yield from _events(client, topic, page["offsets"])
        start = page["next"]


def _events(client: "SyncClient", topic: str, runs: list[tuple[int, int]]) -> Iterator[_Exported]:
    """Yield the events of runs [first, last] of offsets. Damaged events are left out."""
    wanted = {offset for first, last in runs for offset in range(first, last + 1)}
    for first, last in _joined(runs):
        at = first
        while at <= last:
            lines, after = client.read_lines(topic, at, limit=last + 1 - at)
            for event in map(_decode, lines):
                if event.offset in wanted:
                    yield _Exported(event.timestamp, event.priority, event.msg, event.id)
            if after == at:
                break
            at = after


def _joined(runs: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join runs whose distance is at most `GAP`, and yield the results."""
    if not runs:
        return
    first, last = runs[0]
    for begin, end in runs[1:]:
        if begin - last > GAP:
            yield first, last
            first = begin
        last = end
    yield first, last
