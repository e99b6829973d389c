"""Read a stream of JetStream from any sequence on.

A reader is a consumer without acks that the server forgets by itself. The server numbers its deliveries, so the reader notices
a message that got lost on the way. It then begins again after the last message that arrived.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
from msgspec import Struct
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from bridge.central import Arrival, EngineUnreachable, NotThereYet
from bridge.engines.jetstream_link import JetStreamLink, status_of
from bridge.engines.jetstream_messages import arrival_of
from bridge.engines.jetstream_streams import find_stream

__all__ = ["Delivered", "StreamReader", "entries_of"]

_INACTIVE_NS: Final = 300 * 10**9
_BYTES_MAX: Final = 8 << 20
_PAGE: Final = 1000
_NOTHING: Final = frozenset({"404", "408"})
"""The statuses of a request that ends because there is nothing more."""


class Delivered(Struct, frozen=True):
    """A message: its sequence in the stream, and its entry, None if it only says that a position is void."""

    sequence: int
    entry: Arrival | None


class StreamReader:
    """Reads one stream. `next` is the sequence from which it reads on."""

    def __init__(self, link: JetStreamLink, stream: str) -> None:
        self._link = link
        self._stream = stream
        self._consumer = ""
        self._count = 0
        self._last = 0
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._pull: _Pull | None = None

    async def read(self, after: int, count: int, wait_s: float) -> list[Delivered]:
        """Return up to `count` messages after a sequence. Waits up to `wait_s` seconds for one. Raises EngineUnreachable."""
        if not self._consumer or after != self._last:
            await self._start(after)
        found = await self._request({"batch": count, "no_wait": True}, count, 0)
        if not found and wait_s > 0:
            found = await self._request({"batch": 1, "expires": int(wait_s * 10**9)}, 1, wait_s)
        if found:
            self._last = found[-1].sequence
        return found

    def reset(self) -> None:
        """Forget the consumer, which belongs to a connection that is closed."""
        self._consumer = ""
        self._subscription = None

    async def _start(self, after: int) -> None:
        if self._subscription is None:
            self._inbox, self._subscription = await self._link.subscribe(self._take)
        name = f"tweetwire-{secrets.token_hex(8)}"
        config = {
            "name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": after + 1,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": _INACTIVE_NS,
            "max_waiting": 8,
            "num_replicas": 1,
            "mem_storage": True,
        }
        await self._link.api(
            f"CONSUMER.CREATE.{self._stream}.{name}",
            {"stream_name": self._stream, "config": config, "action": "create"},
        )
        self._consumer, self._count, self._last = name, 0, after

    async def _request(self, body: dict[str, Any], count: int, wait_s: float) -> list[Delivered]:
        """Send one request for messages, and return what arrives until it is over."""
        consumer, self._consumer = self._consumer, ""
        pull = self._pull = _Pull(consumer, count, self._count)
        self._link.on_end(pull.over)
        try:
            with anyio.fail_after(wait_s + self._link.login.timeout_s):
                # A message that is larger than the limit would never be delivered.
                limit = max(_BYTES_MAX, 2 * self._link.payload_max)
                await self._link.send(
                    f"CONSUMER.MSG.NEXT.{self._stream}.{consumer}", {**body, "max_bytes": limit}, self._inbox
                )
                await pull.over
        except TimeoutError as error:
            raise EngineUnreachable("the server does not answer") from error
        finally:
            self._pull = None
            pull.over.cancel()
        # A request that was cancelled leaves messages on the way, so only a complete one keeps its consumer.
        self._consumer, self._count = consumer, pull.number
        return pull.found

    def _take(self, message: Msg) -> None:
        if self._pull is not None:
            self._pull.take(message)


class _Pull:
    """The messages of one request.

    Attributes:
        found: The messages that have arrived.
        over: A future that is done once the request is over. It fails if messages are missing.
        number: The number that the server gave to the last delivery.
    """

    def __init__(self, consumer: str, count: int, number: int) -> None:
        self.found: list[Delivered] = []
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.number = number
        self._consumer = consumer
        self._count = count

    def take(self, message: Msg) -> None:
        """Take a message or the end of the request."""
        if self.over.done():
            return
        status = status_of(message)
        if status and not message.reply:
            self._end(status, message)
            return
        place = _Place.of(message.reply)
        if place is None or place.consumer != self._consumer:
            # A delivery of an earlier consumer, which was given up.
            return
        if place.number != self.number + 1:
            self.over.set_exception(EngineUnreachable("messages got lost on the way; the server is asked again"))
            return
        self.number = place.number
        headers: dict[str, str] = message.headers or {}
        entry = arrival_of(place.sequence, message.subject, place.ms, headers, message.data)
        self.found.append(Delivered(place.sequence, entry))
        if len(self.found) >= self._count:
            self.over.set_result(None)

    def _end(self, status: str, message: Msg) -> None:
        text = str((message.headers or {}).get("Description", ""))
        if status in _NOTHING or (status == "409" and "Batch Completed" in text) or "MaxBytes" in text:
            self.over.set_result(None)
        else:
            self.over.set_exception(EngineUnreachable(f"the server ends the reading: {status} {text}".strip()))


class _Place(Struct, frozen=True):
    """The reply subject of a delivery.

    It is ``$JS.ACK.<stream>.<consumer>.<tries>.<sequence>.<number>.<ns>…``, with a domain and an account before the stream on
    some servers.
    """

    consumer: str
    sequence: int
    number: int
    ms: int

    @staticmethod
    def of(reply: str) -> "_Place | None":
        tokens = reply.split(".")
        if len(tokens) > 9:
            del tokens[2:4]
        if len(tokens) < 9 or tokens[:2] != ["$JS", "ACK"]:
            return None
        return _Place(tokens[3], int(tokens[5]), int(tokens[6]), int(tokens[7]) // 10**6)


async def entries_of(link: JetStreamLink, stream: str) -> AsyncIterator[list[Arrival]]:
    """Yield the entries of a stream from its first message to its present end. Raises EngineUnreachable."""
    await link.connect()
    state = await find_stream(link, stream)
    if state is None:
        raise NotThereYet(f"there is no stream {stream}")
    reader, after = StreamReader(link, stream), 0
    while after < state.last:
        found = await reader.read(after, _PAGE, 0)
        if not found:
            return
        yield [one.entry for one in found if one.entry is not None]
        after = found[-1].sequence
