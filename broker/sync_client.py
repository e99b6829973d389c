"""A blocking client, for threads and worker processes: one socket, no reconnect, no task."""

import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Self

import msgspec

from broker.addresses import split_address
from broker.errors import BrokerError, BrokerLost, BrokerUnreachable
from broker.events import Event, encode_event
from broker.protocol import replies
from broker.protocol.replies import Page, ProducerPosition, Receipt, TopicInfo

__all__ = ["SyncClient"]

_READ_BYTES = 256 << 10
_CHUNK = 500


class SyncClient:
    """Connects when it is made. For one thread; use it in a ``with`` block. Times are in seconds."""

    def __init__(
        self,
        address: str,
        *,
        name: str = "sync",
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self.address = address
        host, port = split_address(address)
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            raise BrokerUnreachable(address, error.strerror or str(error)) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self._scanned = 0
        try:
            self._line()
            self._ask(replies.hello_line(name, token))
        except BrokerError:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def publish(self, topic: str, event: Event) -> Receipt:
        """Publish one event and wait for its confirmation. Raises Refusal, BrokerLost."""
        return replies.receipt(self._ask(replies.publish_line(f"pub {topic} ".encode(), encode_event(event))))

    def publish_many(self, topic: str, events: Iterable[Event], *, window: int = 10_000) -> list[Receipt]:
        """Publish events in order, at most `window` of them unconfirmed; returns when all are confirmed.

        Raises Refusal with the first event that was refused, after those before it were confirmed.
        """
        prefix = f"pub {topic} ".encode()
        receipts: list[Receipt] = []
        unconfirmed = 0
        lines = (replies.publish_line(prefix, encode_event(event)) for event in events)
        while chunk := list(islice(lines, _CHUNK)):
            self._send(b"".join(chunk))
            unconfirmed += len(chunk)
            while unconfirmed > max(0, window - _CHUNK):
                unconfirmed -= self._confirm(receipts)
        while unconfirmed:
            unconfirmed -= self._confirm(receipts)
        return receipts

    def read_lines(
        self, topic: str, offset: int | str, *, limit: int = 10_000, bytes_max: int = 8 << 20
    ) -> tuple[list[bytes], int]:
        """Return up to `limit` stored lines (JSON, no line end) of about `bytes_max` bytes, and the next offset."""
        head = self._ask(f"read {topic} {offset} limit={limit} bytes={bytes_max}\n".encode())
        count, after = replies.read_head(head)
        return self._lines(count), after

    def read(self, topic: str, offset: int | str, *, limit: int = 1000) -> Page:
        """Read up to `limit` events from `offset`, ``earliest`` or ``latest`` on."""
        return replies.page(*self.read_lines(topic, offset, limit=limit))

    def last(self, topic: str, producer: str) -> ProducerPosition | None:
        """Return where a producer stands, None where the topic knows it not."""
        return replies.position_answer(self._ask(f"last {topic} {producer}\n".encode()))

    def checkpoint(self, topic: str, producer: str, value: str) -> None:
        """Move a producer's checkpoint without an event; returns when it is on the disk."""
        self._ask(f"checkpoint {topic} {producer} {value}\n".encode())

    def topics(self) -> list[TopicInfo]:
        """Return all topics by name."""
        return replies.topics_answer(self._ask(b"topics\n"))

    def stats(self) -> dict[str, Any]:
        """Return every figure of the broker."""
        answer: dict[str, Any] = msgspec.json.decode(replies.json_answer(self._ask(b"stats\n"), 2))
        return answer

    def command(self, line: str) -> str:
        """Have a command carried out as it is typed, and return its reply; see `replies.command_line`. Raises Refusal."""
        return self._ask(replies.command_line(line)).decode()

    def ping(self) -> None:
        """Wait for the broker's sign of life."""
        self._ask(b"ping\n")

    def _ask(self, line: bytes) -> bytes:
        self._send(line)
        return self._reply()

    def _reply(self) -> bytes:
        reply = self._line()
        if reply.startswith(b"-"):
            raise replies.refusal_of(reply)
        return reply

    def _confirm(self, receipts: list[Receipt]) -> int:
        receipt = replies.receipt(self._reply())
        receipts.append(receipt)
        return receipt.count

    def _send(self, data: bytes) -> None:
        with self._lost():
            self._socket.sendall(data)

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\n", self._scanned)) < 0:
            self._scanned = len(self._buffer)
            self._receive()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._scanned = 0
        return line

    def _lines(self, count: int) -> list[bytes]:
        """Return the next `count` lines, cut from the buffer in one go."""
        have = self._buffer.count(b"\n")
        while have < count:
            before = len(self._buffer)
            self._receive()
            have += self._buffer.count(b"\n", before)
        lines: list[bytes] = bytes(self._buffer).split(b"\n", count)
        self._buffer = bytearray(lines.pop())
        return lines

    def _receive(self) -> None:
        with self._lost():
            data = self._socket.recv(_READ_BYTES)
        if not data:
            raise BrokerLost(self.address)
        self._buffer += data

    @contextmanager
    def _lost(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BrokerLost(self.address) from error
