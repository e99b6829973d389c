"""The blocking client's connection: it owns the socket and the clock, and leaves decisions about commands to the engine.

Always true: an exchange ends with all its commands done before the next exchange begins. An interrupted exchange closes
the connection and drops its commands. Otherwise a late reply would be taken for the reply to the next command.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from socket import socket as Socket  # noqa: N812 — a class
from time import monotonic
from typing import TYPE_CHECKING, Final

from tweetwire.client.blocking.opening import is_readable, open_socket
from tweetwire.client.blocking.outage import ConnectionOutage
from tweetwire.client.blocking.turns import Turns
from tweetwire.client.engine import ClientEngine
from tweetwire.client.engine.commands import Command, ConnectionCommand, HelloCommand, LoginPostponed, OnceCommand
from tweetwire.client.engine.unanswered import Dismissed
from tweetwire.client.logging import OutageLog, client_logger
from tweetwire.protocol.errors import BrokerError, BrokerLost, ClientClosed, ProtocolError, Refusal

if TYPE_CHECKING:
    import ssl

__all__ = ["BlockingLink"]

READ_BYTES: Final = 256 << 10
LEAVE_S: Final = 5.0
BUSY_PAUSES_S: Final = (0.2, 0.5, 1.0)
_ENDS: Final = (OSError, EOFError, Dismissed)
"""The errors that end a connection, where another connection may succeed."""

logger = client_logger(__name__)


class BlockingLink:
    """Carries bytes between `engine` and the broker at `address`, and reconnects by itself.

    Its constructor raises BrokerUnreachable, TlsFailed, ProtocolError and Refusal. Without a connection, an exchange tries
    to connect for `reconnect_s` seconds, and then raises BrokerLost. None means no limit, and 0 means no try. If no answer
    comes for `timeout_s` seconds, BrokerLost is raised at once, because a repeated command might be carried out twice.
    """

    def __init__(
        self,
        address: str,
        name: str,
        engine: ClientEngine,
        *,
        tls: "ssl.SSLContext | None",
        timeout_s: float,
        reconnect_s: float | None,
    ) -> None:
        self.engine = engine
        self.turns = Turns(f"the blocking client of {address}")
        self.address = address
        self._name = name
        self._tls = tls
        self.timeout_s = timeout_s
        self._outage = ConnectionOutage(reconnect_s)
        self._socket: Socket | None = None
        self._outage_log = OutageLog(logger, name)
        self._is_closed = False
        with self.exchange():
            self._log_in()

    def check(self) -> None:
        """Raise RuntimeError in a forked process, ClientClosed after `close`."""
        self.turns.owner.check_process()
        if self._is_closed:
            raise ClientClosed(self.address)

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Enclose the sending of commands and the wait for their replies.

        If the block raises, the connection is closed and unfinished commands are dropped. Raises RuntimeError in a forked
        process, in a second thread at the same time, and inside another exchange.
        """
        self.check()
        with self.turns.taken(self.address):
            try:
                yield
            except BaseException as error:
                if isinstance(error, ProtocolError):
                    self.engine.fail(error)
                # After any exception, a part of the sent or received data may be missing.
                self._close_socket()
                self._outage.end()
                self.engine.drop_commands(BrokerLost(self.address))
                raise

    def run(self, *commands: Command) -> None:
        """Send commands and wait until all are done. Raises BrokerLost, ProtocolError."""
        with self.exchange():
            for command in commands:
                self.engine.send(command)
            self.wait_until(lambda: all(command.is_done for command in commands))

    def post(self, commands: Sequence[Command]) -> None:
        """Run commands that are useful only on this connection. Without a connection they are dropped."""
        with self.exchange():
            for command in commands:
                self.engine.post(command)
            if self._socket is not None:
                self.wait_until(lambda: all(command.is_done for command in commands))

    def ask(self, line: bytes) -> bytes:
        """Send a line and return its reply. Raises Refusal, BrokerLost, ProtocolError."""
        command = Command(line)
        self.run(command)
        return command.outcome()

    def ask_once(self, line: bytes) -> bytes:
        """Send a line once and return its reply. Raises BrokerLost if the connection is lost before the reply."""
        command = OnceCommand(line, self.address)
        self.run(command)
        return command.outcome()

    def ask_all(self, lines: Sequence[bytes]) -> list[bytes | Refusal]:
        """Send lines together, and return the reply or the refusal of each. Raises BrokerLost, ProtocolError."""
        commands = [Command(line) for line in lines]
        self.run(*commands)
        return [one.error if isinstance(one.error, Refusal) else one.outcome() for one in commands]

    def wait_until(self, is_enough: Callable[[], bool]) -> None:
        """Send queued data and receive until `is_enough` returns True, and reconnect if needed. Call it in an exchange.

        Raises BrokerLost, ProtocolError.
        """
        try:
            self._pump(is_enough)
        except TimeoutError as error:
            raise BrokerLost(
                self.address, f"the broker at {self.address} did not answer within {self.timeout_s:g} s"
            ) from error

    def listen(self, within_s: float | None) -> bool:
        """Receive once, and wait at most `within_s` seconds for it. Returns whether data came.

        After `timeout_s` seconds without data, the method sends a ``ping`` and returns after its answer; events may have
        come with it. Without a connection, it tries to connect, and returns once it has a connection or the time is over.
        Raises BrokerLost after `reconnect_s` seconds without a connection, and ProtocolError.
        """
        is_long = within_s is None or within_s > self.timeout_s
        with self.exchange():
            try:
                if self._socket is None:
                    return self._reconnect(None if within_s is None else monotonic() + within_s)
                self._send_output()
                if is_readable(self._socket, self.timeout_s if is_long else within_s):
                    self._receive()
                    if not self.engine.is_waiting:
                        self._outage.end()
                    return True
                if is_long:
                    self._ping()
            except _ENDS as error:
                self._note_lost(error)
            return False

    def close(self) -> None:
        """Say ``quit`` and close the socket. The broker takes the events in flight back and counts no failed try."""
        if self._is_closed:
            return
        self._is_closed = True
        # A forked process must not use its parent's socket, and `quit` must not be sent during another thread's exchange.
        if self.turns.owner.is_this_process and self._socket is not None:
            with suppress(*_ENDS, BrokerError, RuntimeError), self.turns.taken(self.address):
                self._take_leave(self._socket, monotonic() + min(LEAVE_S, self.timeout_s))
        self._close_socket()
        self.engine.fail(ClientClosed(self.address))

    def _log_in(self) -> None:
        """Make the first connection and log in. Try again a few times while the broker is busy with logins.

        Raises BrokerUnreachable, TlsFailed, BrokerLost, Refusal.
        """
        for pause_s in (*BUSY_PAUSES_S, None):
            try:
                hello = self._open()
                while not hello.is_done:
                    self._send_output()
                    self._receive()
                hello.outcome()
                return
            except LoginPostponed as error:
                self._close_socket()
                if error.refusal.code != "busy" or pause_s is None:
                    raise error.refusal from None
                time.sleep(pause_s)
            except Dismissed as error:
                raise error.refusal from None
            except (OSError, EOFError) as error:
                raise BrokerLost(self.address) from error

    def _open(self) -> HelloCommand:
        opened = open_socket(self.address, self._tls, self.timeout_s)
        self._socket = opened.socket
        self._outage.note_connected(monotonic())
        hello = self.engine.begin_connection()
        self.engine.receive(opened.data)
        return hello

    def _pump(self, is_enough: Callable[[], bool]) -> None:
        """Do the same as `wait_until`, but raise TimeoutError if the broker does not answer."""
        while True:
            if self._socket is None:
                self._reconnect(None)
            try:
                self._send_output()
                if is_enough():
                    self._outage.end()
                    return
                self._receive()
            except TimeoutError:
                raise
            except _ENDS as error:
                self._note_lost(error)
                # The loss also ends commands that are useless on another connection, such as acks.
                if is_enough():
                    return
            except ProtocolError as error:
                # The replies of this exchange may have come before the line that breaks the protocol.
                self.engine.fail(error)
                self._close_socket()
                if not is_enough():
                    raise
                return

    def _send_output(self) -> None:
        if self.engine.has_output and self._socket is not None:
            self._socket.sendall(self.engine.take_output())

    def _receive(self) -> None:
        """Receive at least one byte. Raises the errors in `_ENDS`, and ProtocolError."""
        # Another thread may have closed the client.
        data = b"" if self._socket is None else self._socket.recv(READ_BYTES)
        if not data:
            raise EOFError
        # The caller gets refusals as exceptions, so the troubles that the engine returns are not logged.
        self.engine.receive(data)

    def _ping(self) -> None:
        """Check that a silent broker is alive. Raises TimeoutError if it is not."""
        ping = self.engine.send(ConnectionCommand(b"ping\n"))
        self._pump(lambda: ping.is_done)

    def _note_lost(self, error: BaseException) -> None:
        """Note the end of the connection. Raises BrokerLost or Refusal if the client must not connect again."""
        self._close_socket()
        refusal = error.refusal if isinstance(error, Dismissed | LoginPostponed) else None
        self._outage.note_lost(monotonic())
        if self._outage.is_over(monotonic()):
            # The caller gets this as an exception, so it is not logged.
            raise refusal or BrokerLost(self.address) from error
        reason = {} if refusal is None else {"reason": str(refusal)}
        logger.warning("lost the broker", address=self.address, client=self._name, **reason)

    def _reconnect(self, deadline: float | None) -> bool:
        """Connect again. Returns whether that succeeded before `deadline`. Raises BrokerLost after `reconnect_s` seconds."""
        while True:
            if self._is_closed:
                raise ClientClosed(self.address)
            if self._outage.is_over(monotonic()):
                raise BrokerLost(self.address)
            attempt_at = max(monotonic(), self._outage.next_attempt_at)
            if deadline is not None and attempt_at > deadline:
                time.sleep(max(0.0, deadline - monotonic()))
                return False
            time.sleep(max(0.0, attempt_at - monotonic()))
            try:
                self._open()
            except (BrokerError, *_ENDS) as error:
                self._close_socket()
                self._outage.note_failed(monotonic())
                self._outage_log.note_failed(error)
            else:
                self._outage_log.note_connected()
                return True

    def _take_leave(self, connection: Socket, deadline: float) -> None:
        """Send ``quit`` and read until its reply, which comes after all earlier replies.

        Closing a socket with unread data would reset the connection, and the ``quit`` might be lost.
        """
        quit_ = self.engine.send(ConnectionCommand(b"quit\n"))
        while not quit_.is_done and (left_s := deadline - monotonic()) > 0:
            connection.settimeout(left_s)
            self._send_output()
            self._receive()

    def _close_socket(self) -> None:
        connection, self._socket = self._socket, None
        self.engine.end_connection()
        if connection is not None:
            connection.close()
