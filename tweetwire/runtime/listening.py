"""Listen and accept so that no single connection can end the listener. All our programs use this module.

A connection may be gone before its handler starts. After a reset from the peer, the socket has no peer address, and asking
for that address raises. An exception in a task group cancels all of its tasks. So one such connection would end its
listener, and with it the process. Always true here:

- An error of accept is logged at most once in `LOG_EVERY_S` seconds. After a shortage of descriptors or memory, accept
  is tried again after a pause.
- An exception from a handler ends only that handler's connection.
- A connection is closed when its handler returns or raises.
"""

import math
from collections.abc import Awaitable, Callable
from errno import EADDRINUSE, EMFILE, ENFILE, ENOBUFS, ENOMEM
from typing import Any, Final, NamedTuple, TypeVar

import anyio
import structlog
from anyio.abc import Listener, SocketAttribute, SocketStream, TaskGroup
from anyio.streams.stapled import MultiListener

from tweetwire.protocol.errors import StartError

__all__ = [
    "Handler",
    "Peer",
    "accept_each",
    "accept_forever",
    "is_descriptor_shortage",
    "listen",
    "parts_of",
    "peer_of",
    "port_taken",
]

PAUSE_S: Final = 0.2
FAILURES_IN_A_ROW: Final = 100
"""Up to this many errors in a row do not pause the listener; otherwise a peer could slow it down with resets."""
LOG_EVERY_S: Final = 10.0

T = TypeVar("T")

Handler = Callable[[SocketStream], Awaitable[object]]

logger = structlog.stdlib.get_logger()


class Peer(NamedTuple):
    """The other end of a connection: its address without the port, and `host:port` for logs and reports."""

    host: str
    name: str


async def listen(host: str, port: int, flag: str) -> Listener[SocketStream]:
    """Listen on every address of `host`. ``::`` means all IPv6 and IPv4 addresses of this machine.

    Raises StartError if the port cannot be used; if it is in use, the message names `flag`.
    """
    try:
        # anyio restricts a socket for "::" to IPv6. Without a host it listens on IPv6 and IPv4.
        return await anyio.create_tcp_listener(local_host=None if host == "::" else host, local_port=port)
    except OSError as error:
        raise port_taken(error, host, port, flag) from error


def port_taken(error: OSError, host: str, port: int, flag: str) -> StartError:
    """Return the StartError that says why the program cannot listen on `host`:`port`."""
    if error.errno == EADDRINUSE:
        return StartError(f"port {port} on {host} is in use; stop the program that has it or choose another: {flag}")
    return StartError(f"cannot listen on {host}:{port}: {error.strerror or error}")


async def accept_forever(listener: Listener[Any], handle: Handler, connections: TaskGroup) -> None:
    """Accept connections until cancelled, and run `handle` for each of them in the task group `connections`."""

    def begin(stream: SocketStream) -> None:
        connections.start_soon(_guard, stream, handle)

    async with anyio.create_task_group() as accepting:
        for part in parts_of(listener):
            accepting.start_soon(accept_each, part.accept, begin)


def parts_of(listener: Listener[Any]) -> list[Any]:
    """Return the listeners of single addresses. A host with several addresses has one for each."""
    return list(listener.listeners) if isinstance(listener, MultiListener) else [listener]


def peer_of(stream: Any) -> Peer:
    """Return the other end of a connection. Raises BrokenResourceError if the connection was already reset."""
    try:
        address = stream.extra(SocketAttribute.remote_address, None)
    except (AttributeError, OSError) as error:
        # The event loop has already closed the socket, but anyio still asks the socket for its address.
        raise anyio.BrokenResourceError from error
    if address is None:
        raise anyio.BrokenResourceError
    return Peer(address[0], f"{address[0]}:{address[1]}") if isinstance(address, tuple) else Peer("", str(address))


def is_descriptor_shortage(error: BaseException) -> bool:
    """Return whether the process or the system has reached its limit of open files."""
    return isinstance(error, OSError) and error.errno in {EMFILE, ENFILE}


async def accept_each(accept: Callable[[], Awaitable[T]], begin: Callable[[T], object]) -> None:
    """Call `accept` until cancelled, and `begin` with each result. An error of `accept` is logged, and does not end this."""
    logged_at, failures = -math.inf, 0
    while True:
        try:
            accepted = await accept()
        except anyio.ClosedResourceError:
            raise
        except Exception as error:  # noqa: BLE001 — any error here would end every connection of the process
            if anyio.current_time() - logged_at >= LOG_EVERY_S:
                logged_at = anyio.current_time()
                _log_failure(error)
            failures += 1
            if _is_shortage(error) or failures > FAILURES_IN_A_ROW:
                await anyio.sleep(PAUSE_S)
        else:
            failures = 0
            begin(accepted)


async def _guard(stream: SocketStream, handle: Handler) -> None:
    # The event loop reads from an accepted stream until the handler first waits for data. If data is always there already,
    # the handler never waits. Without this pause, memory would then hold everything that a fast client sends.
    stream._transport.pause_reading()  # type: ignore[attr-defined]
    try:
        async with stream:
            await handle(stream)
    except* (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        pass
    except* Exception:
        logger.exception("a bug ended a connection")


def _is_shortage(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in {EMFILE, ENFILE, ENOBUFS, ENOMEM}


def _log_failure(error: Exception) -> None:
    if is_descriptor_shortage(error):
        logger.warning("no file descriptors are left, new connections wait; raise the limit (ulimit -n)")
    else:
        logger.warning("cannot accept a connection; trying again", reason=str(error) or type(error).__name__)
