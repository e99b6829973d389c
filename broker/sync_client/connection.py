"""The socket of a blocking client, and what its lines are: replies for who asks, events for the subscriptions.

Always true: whoever asks reads its reply before anybody else asks, so replies need no places to wait in. Events that come
before a reply are set aside, since their reader asks for something else just now.
"""

import select
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from broker.addresses import split_address
from broker.errors import BrokerError, BrokerLost, Refusal
from broker.greeting import first_bytes, see_greeting, unreachable
from broker.protocol import replies

__all__ = ["Connection"]

READ_BYTES: Final = 256 << 10


class Connection:
    """A connection that has greeted the broker. Raises BrokerUnreachable, TlsFailed, Refusal.

    `set_aside` is given each event's line that comes before a reply. A reply that takes longer than `timeout_s` seconds is
    a lost connection; so is one on which nothing comes for so long and then no reply to a ``ping``.
    """

    def __init__(
        self,
        address: str,
        hello: bytes,
        *,
        tls: ssl.SSLContext | None,
        timeout_s: float,
        set_aside: Callable[[bytes], None],
    ) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._set_aside = set_aside
        host, port = split_address(address)
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            raise unreachable(address, error, tls) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self._scanned = 0
        try:
            self._be_greeted(tls)
            self.ask(hello)
        except BrokerError:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send whole lines, whose replies are read afterwards. Raises BrokerLost."""
        with self._lost():
            self._socket.sendall(data)

    def ask(self, line: bytes) -> bytes:
        """Send a line and return its reply. Raises Refusal, BrokerLost."""
        self.send(line)
        return self.reply()

    def reply(self) -> bytes:
        """Return the next reply. Raises Refusal, BrokerLost."""
        while (line := self._line()).startswith(b"{"):
            self._set_aside(line)
        if line.startswith(b"-"):
            raise replies.refusal_of(line)
        return line

    def ask_all(self, lines: Sequence[bytes]) -> list[bytes | Refusal]:
        """Send lines at once and return what is answered to each. Raises BrokerLost."""
        self.send(b"".join(lines))
        return [self._answer() for _ in lines]

    def lines(self, count: int) -> list[bytes]:
        """Return the `count` lines that belong to a reply, cut from the buffer in one go."""
        have = self._buffer.count(b"\n")
        while have < count:
            before = len(self._buffer)
            self._receive()
            have += self._buffer.count(b"\n", before)
        lines: list[bytes] = bytes(self._buffer).split(b"\n", count)
        self._buffer = bytearray(lines.pop())
        self._scanned = 0
        return lines

    def events(self, within_s: float | None) -> bool:
        """Set aside the events that have come; waits up to `within_s` seconds for the first. Returns whether one came by then.

        Where nothing comes for `timeout_s` seconds it returns, too, having seen that the broker is still there; events may
        have come meanwhile. Raises BrokerLost, and Refusal where the broker takes its leave.
        """
        is_long = within_s is None or within_s > self._timeout_s
        if b"\n" not in self._buffer and not self._is_readable(self._timeout_s if is_long else within_s):
            if is_long:
                self.ask(b"ping\n")
            return False
        for line in (self._line(), *self.lines(self._buffer.count(b"\n"))):
            if line.startswith(b"-"):
                raise replies.refusal_of(line)
            self._set_aside(line)
        return True

    def _is_readable(self, within_s: float | None) -> bool:
        # TLS may hold bytes that the socket has no more.
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        if self._socket.fileno() < 0:
            raise BrokerLost(self._address)
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return bool(poller.poll(None if within_s is None else 1000 * within_s))

    def _answer(self) -> bytes | Refusal:
        try:
            return self.reply()
        except Refusal as refusal:
            return refusal

    def _be_greeted(self, tls: ssl.SSLContext | None) -> None:
        """Wait for the broker's first line. Raises BrokerUnreachable, TlsFailed, and Refusal of one that has no room."""
        try:
            self.send(first_bytes(tls))
            line = self._line()
        except BrokerLost as lost:
            raise unreachable(self._address, lost.__cause__ or EOFError(), tls) from lost
        see_greeting(self._address, line, tls)

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\n", self._scanned)) < 0:
            self._scanned = len(self._buffer)
            self._receive()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._scanned = 0
        return line

    def _receive(self) -> None:
        with self._lost():
            data = self._socket.recv(READ_BYTES)
        if not data:
            raise BrokerLost(self._address)
        self._buffer += data

    @contextmanager
    def _lost(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # A reply that comes after all would be taken for that of the next command.
            self._socket.close()
            raise BrokerLost(self._address) from error
