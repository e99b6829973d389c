"""The replies that a client reads, and the values made from them. The module `requests` makes the lines of commands."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

import msgspec
from msgspec import Struct

from tweetwire.protocol.errors import ProtocolError, Refusal
from tweetwire.protocol.events import StoredEvent, decode_stored

__all__ = [
    "NOT_IN_FLIGHT",
    "Page",
    "ProducerPosition",
    "Receipt",
    "TopicComment",
    "TopicInfo",
    "claimed",
    "completion",
    "created",
    "discarded",
    "earliest_kept",
    "events",
    "page",
    "position_answer",
    "read_head",
    "receipt",
    "refusal_of",
    "settled",
    "sought",
    "stats_answer",
    "subscription_name",
    "text",
    "topics_answer",
    "unsettled",
]

NOT_IN_FLIGHT: Final = frozenset({"stale", "not_subscribed"})
"""The refusals of an ack or nack for an event that is no longer in flight, or not on this connection."""

P = ParamSpec("P")
T = TypeVar("T")


class Receipt(Struct, frozen=True):
    """A confirmation that the broker has stored the offsets `first` to `last` of a topic.

    Attributes:
        durability: The promise of the broker: ``memory``, ``written``, ``synced`` or ``replicated``.
        is_duplicate: Whether the event was not stored again. Then `first` and `last` are the offset of its producer's
            last event.
    """

    topic: str
    first: int
    last: int
    durability: str
    is_duplicate: bool = False

    @property
    def count(self) -> int:
        """The number of publishes that it answers."""
        return self.last - self.first + 1

    def split(self, count: int) -> "tuple[Receipt, Receipt | None]":
        """Return the receipt of the first `count` publishes, and that of the others, or None if there are none."""
        if count >= self.count:
            return self, None
        middle = self.first + count
        return (
            Receipt(self.topic, self.first, middle - 1, self.durability),
            Receipt(self.topic, middle, self.last, self.durability),
        )


class ProducerPosition(Struct, frozen=True):
    """The position of a producer on a topic.

    Attributes:
        offset: The offset of its last event, or -1 if only a checkpoint is known.
        sequence: The sequence of that event, or None if only a checkpoint is known.
        refused: The first refused sequence that must be sent again, or None if it was, and the last refused sequence.
        epoch: The epoch of its last claim, or 0 if no client has claimed it.
        holder: The name of the client that holds it, or None.
    """

    offset: int
    sequence: int | None
    checkpoint: str | None
    refused: tuple[int | None, int] | None = None
    epoch: int = 0
    holder: str | None = None


class TopicComment(Struct, frozen=True):
    """A remark on a topic, with its time (ms since 1970 UTC) and its client."""

    at: int
    client: str
    text: str


class TopicInfo(Struct, frozen=True):
    """A topic. Its offsets `earliest` to `next` - 1 can be read. `log` is the id of its log. `schema` is decoded JSON."""

    topic: str
    earliest: int
    next: int
    bytes: int
    subscriptions: int
    description: str | None = None
    schema: Any = None
    comments: tuple[TopicComment, ...] = ()
    log: str = ""


class Page(Struct, frozen=True):
    """The answer to one ``read``: events in order, and the offset to continue from."""

    events: list[StoredEvent]
    next: int


def _reading(read: Callable[P, T]) -> Callable[P, T]:
    """Raise ProtocolError for a line that is not in the expected form."""

    @wraps(read)
    def read_strictly(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except (ValueError, LookupError, msgspec.MsgspecError, RecursionError) as error:
            line = args[0] if args else b""
            raise ProtocolError(str(error), line if isinstance(line, bytes) else b"") from error

    return read_strictly


@_reading
def events(lines: Sequence[bytes]) -> list[StoredEvent]:
    """Decode event lines."""
    return [decode_stored(line) for line in lines]


@_reading
def refusal_of(line: bytes) -> Refusal:
    """Read a line that begins with ``-`` as a refusal."""
    dash, code, *text = line.decode(errors="replace").split(" ", 2)
    if dash != "-ERR":
        raise ValueError("a refusal begins with -ERR")
    return Refusal(code, "".join(text))


@_reading
def receipt(line: bytes) -> Receipt:
    """Read ``+OK pub <topic> <offset>[-<offset>] <promise>`` or ``+OK dup <topic> <offset>``."""
    _, kind, topic, offsets, *promise = line.decode().split(" ")
    first, _, last = offsets.partition("-")
    found = Receipt(topic, int(first), int(last or first), promise[0] if promise else "", kind == "dup")
    if found.count < 1:
        raise ValueError("a confirmation is of at least one event")
    return found


@_reading
def completion(line: bytes) -> Receipt:
    """Read ``+COMP <topic> <id> <offset> <promise>``."""
    _, topic, _, offset, promise = line.decode().split(" ")
    return Receipt(topic, int(offset), int(offset), promise)


@_reading
def settled(line: bytes) -> int:
    """Read the number of settled events from ``+OK ack <topic> <n>`` or ``+OK nack <topic> <n>``."""
    return int(line.split(b" ")[3])


@_reading
def created(line: bytes) -> bool:
    """Read ``+OK create <topic> new|exists``. Returns whether the topic is new."""
    return {b"new": True, b"exists": False}[line.split(b" ")[3]]


@_reading
def claimed(line: bytes) -> int:
    """Read the epoch from ``+OK claim <topic> <producer> <epoch>``."""
    return int(line.split(b" ")[4])


@_reading
def earliest_kept(line: bytes) -> int:
    """Read the first offset that is left from ``+OK purge <topic> <offset>``."""
    return int(line.split(b" ")[3])


@_reading
def sought(line: bytes) -> int:
    """Read the offset from ``+OK seek <topic> as=<name> from=<offset> pending=<n>``."""
    return int(line.split(b" ")[4].removeprefix(b"from="))


@_reading
def discarded(line: bytes) -> int:
    """Read the number of discarded events from ``+OK discard <topic> <n>``."""
    return int(line.split(b" ")[3])


def unsettled(request: bytes, count: int) -> int:
    """Return the number of events that an ``ack`` or ``nack`` line names, minus the `count` that were in flight."""
    verb, _, *refs = request.split()
    # A nack names one event, and its reason follows. An event that an ack names twice counts once.
    return max(0, (1 if verb == b"nack" else len(set(refs))) - count)


@_reading
def subscription_name(line: bytes) -> str:
    """Return the name in ``+OK sub <topic> as=<name> …``."""
    return line.split(b" ")[3].removeprefix(b"as=").decode()


@_reading
def read_head(line: bytes, limit: int) -> tuple[int, int]:
    """Read ``+OK read <topic> <n> next=<offset>`` as (n, offset). The request asked for at most `limit` lines."""
    _, _, _, count, after = line.split(b" ")
    if not 0 <= int(count) <= limit:
        raise ValueError(f"the request asked for at most {limit} events")
    return int(count), int(after.removeprefix(b"next="))


def page(lines: Sequence[bytes], after: int) -> Page:
    """Decode the event lines of a ``read``."""
    return Page(events(lines), after)


@_reading
def text(line: bytes) -> str:
    """Return a reply as text."""
    return line.decode()


@_reading
def topics_answer(reply: bytes) -> list[TopicInfo]:
    """Read ``+OK topics <json>``."""
    return msgspec.json.decode(_json(reply, 2), type=list[TopicInfo])


@_reading
def stats_answer(reply: bytes) -> dict[str, Any]:
    """Read ``+OK stats <json>``."""
    return msgspec.json.decode(_json(reply, 2), type=dict[str, Any])


@_reading
def position_answer(reply: bytes) -> ProducerPosition | None:
    """Read ``+OK last <topic> <producer> <json>``."""
    position: ProducerPosition | None = msgspec.json.decode(_json(reply, 4), type=ProducerPosition | None)
    return position


def _json(line: bytes, words: int) -> bytes:
    """Return the JSON after the first `words` words of a reply."""
    return line.split(b" ", words)[words]
