"""The lines that a client sends, made from arguments. The module `replies` reads the answers.

Invariant: a function returns whole lines, each of them one command, or raises ValueError. Only this module and the other
modules of requests put text of an application into a line. They check it with `request_words`, so no argument can add a word,
an option or a command.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from tweetwire.protocol.claim_requests import producer_word
from tweetwire.protocol.failures import Cause
from tweetwire.protocol.policy import Ordered
from tweetwire.protocol.reasons import reason_json
from tweetwire.protocol.request_words import (
    REFS_PER_LINE,
    Start,
    causes,
    duration,
    encoded,
    is_word,
    number,
    start_word,
    word,
)

__all__ = [
    "Start",
    "SubscribeRequest",
    "ack_lines",
    "begin_lines",
    "checkpoint_line",
    "command_line",
    "extend_line",
    "forget_line",
    "hello_line",
    "last_line",
    "nack_line",
    "pub2_line",
    "publish_line",
    "publish_prefix",
    "pubrel_line",
    "read_line",
    "request_line",
    "skip_line",
    "stats_line",
    "step_line",
    "subscribe_request",
    "whole_line",
]

_OTHER_VERBS = frozenset({"hello", "pub", "publish", "sub", "subscribe", "unsub", "unsubscribe", "read", "quit"})
_encode = msgspec.json.Encoder().encode


class SubscribeRequest(Struct, frozen=True):
    """The checked words of a ``sub`` line. Only the start may differ from one connection to the next."""

    topic: str
    name: str | None
    prefetch: int
    options: str

    def line(self, start: Start) -> bytes:
        """Return the ``sub`` line that begins at `start`."""
        return f"sub {self.topic}{self._as} from={start_word(start)} {self.options}\n".encode()

    def leave_line(self, *, end: bool = False) -> bytes:
        """Return the ``unsub`` line. With `end`, a subscription that has a name ends for all clients."""
        return f"unsub {self.topic}{self._as}{' end' if end and self.name is not None else ''}\n".encode()

    @property
    def _as(self) -> str:
        return "" if self.name is None else f" as={self.name}"


def subscribe_request(
    topic: str,
    *,
    as_: str | None,
    prefetch: int,
    create: bool,
    timeout_s: float | None,
    tries: int | None,
    strikes: Sequence[Cause] | None,
    backoff_s: float | None,
    max_wait_s: float | None,
    qos: int,
    ordered: Ordered | None = None,
    begins: bool = False,
) -> SubscribeRequest:
    """Check the arguments of a subscription. A policy option that is None is left out. Raises ValueError."""
    options = {
        "prefetch": number("prefetch", prefetch),
        "timeout": None if timeout_s is None else duration("timeout_s", timeout_s),
        "tries": None if tries is None else number("tries", tries),
        "strikes": None if strikes is None else causes(strikes),
        "backoff": None if backoff_s is None else duration("backoff_s", backoff_s),
        "max_wait": None if max_wait_s is None else duration("max_wait_s", max_wait_s),
        "qos": "2" if qos == 2 else None,
        "ordered": None if ordered is None else word("ordered", ordered),
    }
    words = [f"{name}={value}" for name, value in options.items() if value is not None]
    if begins:
        words.append("begins")
    return SubscribeRequest(
        word("topic", topic),
        None if as_ is None else word("as_", as_),
        prefetch,
        " ".join([*words, "create"] if create else words),
    )


def hello_line(name: str, token: str | None) -> bytes:
    """Return the line that names a client."""
    if token is None:
        return f"hello {word('name', name)}\n".encode()
    if not is_word(token):
        # The message must not show the token.
        raise ValueError("the token is not one word: it must not be empty or contain white space")
    return f"hello {word('name', name)} token={token}\n".encode()


def publish_prefix(topic: str, options: str = "") -> bytes:
    """Return the beginning of every ``pub`` line for a topic. `options` come from `mark_requests.confirmation_options`."""
    return f"pub {word('topic', topic)} {options}".encode()


def publish_line(prefix: bytes, body: bytes) -> bytes:
    """Return a ``pub`` line from the results of `publish_prefix` and `encode_event`."""
    return b"%b%b\n" % (prefix, body)


def request_line(topic: str, timeout_s: float, body: bytes) -> bytes:
    """Return a ``request`` line. `body` is the result of `encode_event`."""
    head = f"request {word('topic', topic)} timeout={duration('timeout_s', timeout_s)}"
    return b"%b %b\n" % (head.encode(), body)


def pub2_line(topic: str, body: str) -> bytes:
    """Return the first step of exactly-once publishing. `body` is the result of `encode_event`, as text."""
    return whole_line(f"pub2 {word('topic', topic)} {body}\n".encode())


def pubrel_line(topic: str, id_: str) -> bytes:
    """Return the second step of exactly-once publishing."""
    return f"pubrel {word('topic', topic)} {word('id', id_)}\n".encode()


def step_line(verb: str, topic: str, offset: int) -> bytes:
    """Return a step of exactly-once consuming: ``pubrec`` or ``pubcomp``."""
    return f"{verb} {word('topic', topic)} @{number('offset', offset)}\n".encode()


def ack_lines(topic: str, offsets: Sequence[int]) -> list[bytes]:
    """Return the ``ack`` lines that settle `offsets`, at most `REFS_PER_LINE` in each."""
    return _ref_lines("ack", topic, offsets)


def begin_lines(topic: str, offsets: Sequence[int]) -> list[bytes]:
    """Return the ``begin`` lines of `offsets`, at most `REFS_PER_LINE` in each."""
    return _ref_lines("begin", topic, offsets)


def _ref_lines(verb: str, topic: str, offsets: Sequence[int]) -> list[bytes]:
    prefix = f"{verb} {word('topic', topic)} @".encode()
    return [
        b"%b%b\n" % (prefix, _refs(offsets[at : at + REFS_PER_LINE])) for at in range(0, len(offsets), REFS_PER_LINE)
    ]


def extend_line(topic: str, offsets: Sequence[int]) -> bytes:
    """Return the line that restarts the ack timers of `offsets`."""
    return b"extend %b @%b\n" % (word("topic", topic).encode(), _refs(offsets))


def nack_line(topic: str, offset: int, message: str | None, code: str | int | None, trace: str | None) -> bytes:
    """Return the line that gives an event back. The reason is cut to the size that the broker keeps."""
    error = reason_json(message, code, trace)
    return b"nack %b @%b %b\n" % (word("topic", topic).encode(), number("offset", offset).encode(), error)


def read_line(
    topic: str, start: Start, limit: int, bytes_max: int, wait_s: float = 0.0, *, log: str | None = None
) -> bytes:
    """Return the line that reads a topic's log, and at its end waits up to `wait_s` seconds for the next event.

    Unless `log` is None, the log must have this id.
    """
    limits = f"limit={number('limit', limit)} bytes={number('bytes_max', bytes_max)}"
    wait = f" wait={duration('wait_s', wait_s)}" if wait_s else ""
    of = "" if log is None else f" log={word('log', log)}"
    return f"read {word('topic', topic)} {start_word(start)} {limits}{wait}{of}\n".encode()


def stats_line(topic: str | None) -> bytes:
    """Return the line that asks for the figures of all topics, or of one topic."""
    return b"stats\n" if topic is None else f"stats {word('topic', topic)}\n".encode()


def last_line(topic: str, producer: str) -> bytes:
    """Return the line that asks for the position of a producer."""
    return f"last {word('topic', topic)} {word('producer', producer)}\n".encode()


def checkpoint_line(topic: str, producer: str, value: str, epoch: int | None = None) -> bytes:
    """Return the line that moves a producer's checkpoint.

    `value` is the rest of the line. The broker strips white space at its ends, so a value with such white space is refused
    here.
    """
    if not isinstance(value, str) or not value or value.strip() != value or "\n" in value or "\r" in value:
        raise ValueError(f"checkpoint {value!r:.80} is not one line of text without white space at its ends")
    return encoded(f"checkpoint {word('topic', topic)} {producer_word(producer, epoch)} {value}\n")


def skip_line(topic: str, producer: str, sequence: int, epoch: int | None = None) -> bytes:
    """Return the line that gives up a producer's refused events up to a sequence."""
    words = f"{word('topic', topic)} {producer_word(producer, epoch)} {number('sequence', sequence)}"
    return f"skip {words}\n".encode()


def forget_line(topic: str, producer: str) -> bytes:
    """Return the line that removes a producer from a topic."""
    return f"forget {word('topic', topic)} {word('producer', producer)}\n".encode()


def command_line(text: str) -> bytes:
    """Return the line of a command whose reply is exactly one line.

    Raises:
        ValueError: The command has a reply of several lines, or ends the connection; or the text is not one line.
    """
    verb = "".join(text.split(None, 1)[:1]).lower()
    # The broker may take a line that begins with white space for an empty one, which has no reply.
    if verb in _OTHER_VERBS or not verb or text[0].isspace() or "\n" in text:
        raise ValueError(
            f"{text[:80]!r} is not a command with one reply; use the method of the client for this command"
        )
    return encoded(f"{text}\n")


def whole_line(line: bytes) -> bytes:
    """Return `line`. Raises ValueError if it is not exactly one line with its end."""
    if line.find(b"\n") != len(line) - 1 or line.isspace() or not line:
        raise ValueError(f"{line[:80]!r} is not one line with its end")
    return line


def _refs(offsets: Sequence[int]) -> bytes:
    # The JSON encoder is twice as fast as a str() for each offset, and no element can hold a line end.
    return _encode(offsets)[1:-1].replace(b",", b" @")
