"""``POST /topics/{topic}``: publish one event or many. Receipts are sent after their promise is kept."""

import re
import secrets
from collections.abc import Iterator
from typing import Any, Final

import anyio
import msgspec
from msgspec import UNSET, Struct, UnsetType

from broker.gateways.http.answers import Answer, error_of, json_answer, lines_answer, status_of
from broker.gateways.http.call import Call
from broker.gateways.http.errand import Errand
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.lines import TOO_LONG
from tweetwire.protocol.replies import refusal_of

__all__ = ["Handshakes", "publish"]

EVENTS_MAX: Final = 10_000
KEY_CHARACTERS_MAX: Final = 256
SHARDS: Final = 16
_LINES_TYPES: Final = frozenset({"application/x-ndjson", "application/jsonl", "application/jsonlines"})
_OPTIONS: Final = ("delay", "at", "expires", "after", "within")
_HANDSHAKE_OPTIONS: Final = ("delay", "at", "expires")
_CONFIRMED: Final = re.compile(rb"\+OK (pub|dup) [^ ]+ (\d+)(?:-(\d+))?(?: (\w+))?")
_COMPLETED: Final = re.compile(rb"\+COMP [^ ]+ [^ ]+ (\d+) (\w+)")


class _Named(Struct):
    id: Any = UNSET


_decode_id = msgspec.json.Decoder(_Named).decode


class Receipt(Struct, omit_defaults=True):
    """The confirmation of one event."""

    topic: str
    offset: int
    promise: str
    duplicate: bool = False


class Handshakes:
    """Makes a publish with an `Idempotency-Key` safe to repeat, by the exactly-once handshake of the line protocol.

    The broker keeps the state of a handshake under a client's name, and accepts steps only from the newest session of that
    name. So each user has `SHARDS` names, and one handshake of a name takes place at a time.
    """

    def __init__(self) -> None:
        self._turns: dict[str, tuple[anyio.Lock, int]] = {}

    async def publish(self, call: Call, topic: str, key: str, raw: bytes) -> Answer:
        """Store an event once, whose id is the key, and return its receipt. A repeated key returns the first receipt."""
        if not (0 < len(key) <= KEY_CHARACTERS_MAX and key.isprintable() and not any(map(str.isspace, key))):
            raise Refusal("bad_arguments", f"Idempotency-Key is one word of at most {KEY_CHARACTERS_MAX} characters")
        event = _with_key(raw, key)
        name = f"http.{call.visitor.name}"[:120] + f".{sum(key.encode()) % SHARDS}"
        lock, waiting = self._turns.get(name, (anyio.Lock(), 0))
        self._turns[name] = (lock, waiting + 1)
        try:
            async with lock:
                with call.errand() as errand:
                    errand.session.name, errand.session.is_named = name, True
                    return await _shake_hands(errand, topic, key, event, call.words(*_HANDSHAKE_OPTIONS))
        finally:
            lock, waiting = self._turns.pop(name)
            if waiting > 1:
                self._turns[name] = (lock, waiting - 1)


async def publish(call: Call, handshakes: Handshakes) -> Answer:
    """Publish the events of the body."""
    call.check_query(*_OPTIONS)
    topic, options = call.topic, call.words(*_OPTIONS)
    body = (await call.body()).replace(b"\r", b" ")
    key = call.headers.get("idempotency-key")
    raws = _events_of(body, call.headers.get("content-type", ""))
    if not raws:
        raise Refusal("bad_arguments", "the body has no event; send a JSON object, or one a line")
    if len(raws) > EVENTS_MAX:
        raise Refusal("too_long", f"a request has at most {EVENTS_MAX} events; send several requests")
    if key is not None:
        if len(raws) > 1:
            raise Refusal(
                "bad_arguments", "Idempotency-Key is for one event; give many events a producer and sequences"
            )
        return await handshakes.publish(call, topic, key, raws[0])
    head = f"pub {topic}{options} ".encode()
    most = call.options.limits.line_bytes
    lines = [_line(head, raw, most) for raw in raws]
    with call.errand() as errand:
        replies = await errand.ask(*lines)
    return _answer(topic, replies, call.options.promise, is_single=len(raws) == 1)


def _events_of(body: bytes, content_type: str) -> list[bytes]:
    """Return the texts of the events, each without line ends: one for each line, or a single one over several lines."""
    kind = content_type.partition(";")[0].strip().lower()
    lines = [line for line in map(bytes.strip, body.split(b"\n")) if line]
    if len(lines) > 1 and kind not in _LINES_TYPES:
        try:
            msgspec.json.decode(body, type=msgspec.Raw)
        except msgspec.DecodeError:
            return lines
        return [b" ".join(lines)]
    return lines


def _line(head: bytes, raw: bytes, most: int) -> bytes:
    line = head + _with_id(raw)
    return TOO_LONG if len(line) > most else line


def _with_id(raw: bytes) -> bytes:
    """Return an event with an id: a new one where it is missing. A text that is not an event stays; the parser refuses it."""
    if not raw.startswith(b"{"):
        # As a JSON text, it cannot be read as an option of the command.
        return msgspec.json.encode(raw[:80].decode(errors="replace"))
    if raw.startswith(b'{"id":'):
        return raw
    try:
        if _decode_id(raw).id is not UNSET:
            return raw
    except msgspec.DecodeError:
        return raw
    return _inserted(raw, secrets.token_hex(16))


def _inserted(raw: bytes, id_: str) -> bytes:
    rest = raw[1:].lstrip()
    return b'{"id":%b%b%b' % (msgspec.json.encode(id_), b"" if rest.startswith(b"}") else b",", rest)


def _with_key(raw: bytes, key: str) -> bytes:
    try:
        found: Any | UnsetType = _decode_id(raw).id
    except msgspec.DecodeError:
        return raw
    if found is UNSET:
        return _inserted(raw, key)
    if found != key:
        raise Refusal("bad_event", "the event's id differs from the Idempotency-Key; leave one of them out")
    return raw


async def _shake_hands(errand: Errand, topic: str, key: str, event: bytes, options: str) -> Answer:
    held = await errand.ask(f"pub2 {topic}{options} ".encode() + event)
    if not held.startswith(b"+REC "):
        raise refusal_of(held.rstrip())
    stored = await errand.ask(f"pubrel {topic} {key}".encode())
    completed = _COMPLETED.match(stored)
    if completed is None:
        raise refusal_of(stored.rstrip())
    return json_answer(Receipt(topic, int(completed[1]), completed[2].decode()))


def _outcomes(topic: str, replies: bytes, promise: str) -> Iterator[Receipt | Refusal]:
    """Yield the outcome of each event, in order."""
    for line in replies.splitlines():
        if (confirmed := _CONFIRMED.match(line)) is None:
            yield refusal_of(line)
            continue
        kind, first, last, word = confirmed.groups()
        kept = promise if word is None else word.decode()
        for offset in range(int(first), int(last or first) + 1):
            yield Receipt(topic, offset, kept, kind == b"dup")


def _answer(topic: str, replies: bytes, promise: str, *, is_single: bool) -> Answer:
    outcomes = list(_outcomes(topic, replies, promise))
    refusals = [one for one in outcomes if isinstance(one, Refusal)]
    if is_single:
        return error_of(refusals[0]) if refusals else json_answer(outcomes[0])
    lines = msgspec.json.Encoder().encode_lines(
        [{"error": {"code": one.code, "message": one.text}} if isinstance(one, Refusal) else one for one in outcomes]
    )
    status = 207 if refusals else 200
    if refusals and len(refusals) == len(outcomes):
        status = status_of(refusals[0])
    return lines_answer(lines, status)
