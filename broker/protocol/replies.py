"""What a client reads: replies → answers. The other half of the wire, used by both clients."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from broker.errors import Refusal
from broker.events import StoredEvent, decode_stored
from broker.failures import Cause
from broker.units import format_seconds

__all__ = [
    "Page",
    "ProducerPosition",
    "Receipt",
    "TopicComment",
    "TopicInfo",
    "ack_lines",
    "command_line",
    "completion",
    "hello_line",
    "json_answer",
    "page",
    "policy_options",
    "position_answer",
    "publish_line",
    "read_head",
    "receipt",
    "refusal_of",
    "subscription_name",
    "topics_answer",
]

_REFS_PER_LINE = 512
_OTHER_VERBS = frozenset({"hello", "pub", "publish", "sub", "subscribe", "unsub", "unsubscribe", "read", "quit"})


class Receipt(Struct, frozen=True):
    """A confirmation of the offsets first…last of a topic; `durability` is what the broker promises of them.

    A duplicate was not stored again: `first` = `last` is the offset of its producer's last event.
    """

    topic: str
    first: int
    last: int
    durability: str
    is_duplicate: bool = False

    @property
    def count(self) -> int:
        """How many publishes it answers."""
        return self.last - self.first + 1

    def split(self, count: int) -> "tuple[Receipt, Receipt | None]":
        """Return the share of the first `count` publishes, and the rest if there is one."""
        if count >= self.count:
            return self, None
        middle = self.first + count
        return (
            Receipt(self.topic, self.first, middle - 1, self.durability),
            Receipt(self.topic, middle, self.last, self.durability),
        )


class ProducerPosition(Struct, frozen=True):
    """Where a producer stands on a topic; `offset` is -1 and `sequence` None where only a checkpoint is known."""

    offset: int
    sequence: int | None
    checkpoint: str | None


class TopicComment(Struct, frozen=True):
    """A remark on a topic: when (ms since 1970 UTC) and by which client."""

    at: int
    client: str
    text: str


class TopicInfo(Struct, frozen=True):
    """A topic: offsets `earliest` … `next` - 1 can be read. `schema` is the JSON Schema of its events' `msg`, as decoded."""

    topic: str
    earliest: int
    next: int
    bytes: int
    subscriptions: int
    description: str | None = None
    schema: Any = None
    comments: tuple[TopicComment, ...] = ()


class Page(Struct, frozen=True):
    """What one `read` gave: events in order, and the offset to read on from."""

    events: list[StoredEvent]
    next: int


def command_line(text: str) -> bytes:
    """Return the line of a command that has one reply of one line, which nothing else can be taken for.

    Raises ValueError for those that bring more lines with them or end the connection, and for what is not one line.
    """
    verb = text.split(" ", 1)[0].lower()
    if verb in _OTHER_VERBS or not verb or "\n" in text:
        raise ValueError(f"{text[:80]!r} is no command with one reply; the client has a method of its own for others")
    return f"{text}\n".encode()


def refusal_of(line: bytes) -> Refusal:
    """Return the refusal that a line beginning with ``-`` is."""
    code, _, text = line.removeprefix(b"-ERR ").decode(errors="replace").partition(" ")
    return Refusal(code, text)


def receipt(line: bytes) -> Receipt:
    """Read ``+OK pub <topic> <offset>[-<offset>] <promise>`` or ``+OK dup <topic> <offset>``."""
    _, kind, topic, offsets, *promise = line.decode().split(" ")
    first, _, last = offsets.partition("-")
    return Receipt(topic, int(first), int(last or first), promise[0] if promise else "", kind == "dup")


def completion(line: bytes) -> Receipt:
    """Read ``+COMP <topic> <id> <offset> <promise>``."""
    _, topic, _, offset, promise = line.decode().split(" ")
    return Receipt(topic, int(offset), int(offset), promise)


def json_answer(line: bytes, words: int) -> bytes:
    """Return the JSON behind the first `words` words of a reply."""
    return line.split(b" ", words)[words]


def subscription_name(line: bytes) -> str:
    """Return the name in ``+OK sub <topic> as=<name> …``."""
    return line.split(b" ")[3].removeprefix(b"as=").decode()


def read_head(line: bytes) -> tuple[int, int]:
    """Read ``+OK read <topic> <n> next=<offset>`` as (n, offset)."""
    _, _, _, count, after = line.split(b" ")
    return int(count), int(after.removeprefix(b"next="))


def page(lines: Sequence[bytes], after: int) -> Page:
    """Decode the event lines of a `read`."""
    return Page([decode_stored(line) for line in lines], after)


def hello_line(name: str, token: str | None) -> bytes:
    """Return the line that names a client."""
    return f"hello {name}\n".encode() if token is None else f"hello {name} token={token}\n".encode()


def policy_options(
    timeout_s: float | None,
    tries: int | None,
    strikes: Sequence[Cause] | None,
    backoff_s: float | None,
    max_wait_s: float | None,
) -> str:
    """Return the policy's options of a ``sub`` line, each with a space before it; what is None is left out."""
    options = {
        "timeout": None if timeout_s is None else format_seconds(timeout_s),
        "tries": tries,
        "strikes": None if strikes is None else ",".join(strikes) or "none",
        "backoff": None if backoff_s is None else format_seconds(backoff_s),
        "max_wait": None if max_wait_s is None else format_seconds(max_wait_s),
    }
    return "".join(f" {name}={value}" for name, value in options.items() if value is not None)


def publish_line(prefix: bytes, body: bytes) -> bytes:
    """Return a whole ``pub`` line; `prefix` ends with the topic and a space."""
    return b"%b%b\n" % (prefix, body)


def ack_lines(topic: str, offsets: Sequence[int]) -> list[bytes]:
    """Return the ``ack`` lines that settle `offsets`, a few hundred in one."""
    return [
        f"ack {topic} @{' @'.join(map(str, offsets[at : at + _REFS_PER_LINE]))}\n".encode()
        for at in range(0, len(offsets), _REFS_PER_LINE)
    ]


def topics_answer(reply: bytes) -> list[TopicInfo]:
    """Read ``+OK topics <json>``."""
    return msgspec.json.decode(json_answer(reply, 2), type=list[TopicInfo])


def position_answer(reply: bytes) -> ProducerPosition | None:
    """Read ``+OK last <topic> <producer> <json>``."""
    position: ProducerPosition | None = msgspec.json.decode(json_answer(reply, 4), type=ProducerPosition | None)
    return position
