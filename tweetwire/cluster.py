"""The brokers that share a central engine: heartbeats, and the events of the topic `cluster_view`.

A bridge leaves heartbeats of its broker at the engine, and reads those of the other brokers. It publishes what it has read to
its own broker, where the dashboard and the command line find it.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct, structs

from tweetwire.protocol.events import StoredEvent

__all__ = [
    "CLUSTER_VIEW",
    "BrokerSeen",
    "CentreView",
    "Heartbeat",
    "TopicHeld",
    "bounded_heartbeat",
    "bounded_view",
    "newest_views",
    "read_heartbeat",
    "standing_of",
]

CLUSTER_VIEW: Final = "cluster_view"
"""The topic to which bridges publish what they see of other brokers."""
MISSED_MAX: Final = 3
"""After this many missing heartbeats, a broker is silent."""
_SLACK_S: Final = 5.0

_encode = msgspec.json.Encoder().encode


class TopicHeld(Struct, frozen=True):
    """A topic that a broker holds.

    Attributes:
        topic: Its name.
        earliest: The lowest offset of its log.
        next: The offset that the next event will have.
        lag: For each mark of the topic, how many events the other system does not have yet.
    """

    topic: str
    earliest: int
    next: int
    lag: dict[str, int] = {}


class Heartbeat(Struct, frozen=True, kw_only=True):
    """The state of a broker, as its bridge leaves it at the engine.

    Attributes:
        form: The version of this form.
        broker: The identity of the broker.
        address: The address of the broker that its bridge shows.
        version: The version of tweetwire that the bridge has.
        at_ms: The time of the bridge's clock. It is shown, and no age is computed from it.
        every_s: The seconds between two heartbeats.
        is_last: Whether the bridge was stopped in order, so that no heartbeat follows.
        topics: The topics, those with marks first.
        left_out: The number of topics that had no room.
    """

    form: int = 1
    broker: str
    address: str
    version: str
    at_ms: int
    every_s: float
    is_last: bool = False
    topics: list[TopicHeld] = []
    left_out: int = 0

    def lag(self, mark: str | None = None) -> int:
        """Return the number of events that are not done at the mark that is furthest back, or at `mark`, over all topics."""
        return sum(
            max([count for name, count in one.lag.items() if mark in {None, name}], default=0) for one in self.topics
        )


class BrokerSeen(Struct, frozen=True):
    """A heartbeat, and its age in seconds by the engine's clock when the bridge read it."""

    heartbeat: Heartbeat
    age_s: float


class CentreView(Struct, frozen=True, kw_only=True):
    """The message of an event of `cluster_view`: the brokers that share one engine.

    Attributes:
        centre: The address of the engine.
        trouble: Why the engine could not be asked, "" if it was.
        asked_s: How long ago the engine last answered, in seconds; 0 if there is no trouble, None if it never did.
        brokers: The brokers, with the ages that their heartbeats have now.
        unreadable: The number of heartbeats of another version.
        left_out: The number of brokers that had no room.
    """

    centre: str
    trouble: str = ""
    asked_s: float | None = 0.0
    brokers: list[BrokerSeen] = []
    unreadable: int = 0
    left_out: int = 0


_decode_heartbeat = msgspec.json.Decoder(Heartbeat).decode
_decode_view = msgspec.json.Decoder(CentreView).decode


def read_heartbeat(data: bytes) -> Heartbeat | None:
    """Return the heartbeat in `data`, None for other content: any client of the engine can write it."""
    try:
        found = _decode_heartbeat(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.form == 1 else None


def bounded_heartbeat(heartbeat: Heartbeat, bytes_max: int) -> Heartbeat:
    """Return a heartbeat of at most `bytes_max` bytes as JSON. The last topics are left out if there are too many."""
    while len(_encode(heartbeat)) > bytes_max and heartbeat.topics:
        kept = len(heartbeat.topics) // 2
        left_out = heartbeat.left_out + len(heartbeat.topics) - kept
        heartbeat = structs.replace(heartbeat, topics=heartbeat.topics[:kept], left_out=left_out)
    return heartbeat


def bounded_view(view: CentreView, bytes_max: int) -> CentreView:
    """Return a view of at most `bytes_max` bytes as JSON: with fewer topics of each broker, or else with fewer brokers."""
    size = len(_encode(view))
    if size > bytes_max:
        share = bytes_max // max(1, len(view.brokers))
        view = structs.replace(
            view,
            brokers=[
                structs.replace(one, heartbeat=bounded_heartbeat(one.heartbeat, share // 2)) for one in view.brokers
            ],
        )
    while len(_encode(view)) > bytes_max and view.brokers:
        kept = len(view.brokers) // 2
        left_out = view.left_out + len(view.brokers) - kept
        view = structs.replace(view, brokers=view.brokers[:kept], left_out=left_out)
    return view


def newest_views(events: Iterable[StoredEvent]) -> dict[str, tuple[CentreView, int]]:
    """Return the newest view of each engine with the date of its event (ms), from events in order. Others are left out."""
    found: dict[str, tuple[CentreView, int]] = {}
    for event in events:
        try:
            view = _decode_view(event.msg)
        except (msgspec.MsgspecError, RecursionError):
            continue
        found[view.centre] = (view, event.timestamp)
    return dict(sorted(found.items()))


def standing_of(heartbeat: Heartbeat, age_s: float) -> str:
    """Return ``present``, ``silent`` or ``stopped``: the state of a broker whose last heartbeat has this age."""
    if heartbeat.is_last:
        return "stopped"
    return "silent" if age_s > MISSED_MAX * heartbeat.every_s + _SLACK_S else "present"
