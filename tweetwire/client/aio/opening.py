"""Open a connection of the async client and wait for the broker's greeting; log in once, to check a login."""

import ssl
from typing import NamedTuple

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream

from tweetwire.client.addresses import split_address
from tweetwire.client.greeting import GREETING_MAX, first_bytes, root_cause, see_greeting, unreachable, watch_peer
from tweetwire.protocol import replies
from tweetwire.protocol.errors import BrokerUnreachable, TlsFailed

__all__ = ["Opened", "open_connection", "open_stream", "say_hello", "stream_unreachable"]


class Opened(NamedTuple):
    """A connection after the broker's greeting, and the data received so far, which begins with the greeting."""

    stream: ByteStream
    data: bytes


async def open_stream(address: str, tls: ssl.SSLContext | None) -> ByteStream:
    """Connect, with TLS or without. Raises the errors that `stream_unreachable` translates."""
    host, port = split_address(address)
    if tls is None:
        return await anyio.connect_tcp(host, port)
    return await anyio.connect_tcp(host, port, ssl_context=tls, tls_standard_compatible=False)


def stream_unreachable(address: str, error: BaseException, tls: ssl.SSLContext | None) -> BrokerUnreachable | TlsFailed:
    """Return the client's error for an exception of a stream before the greeting, as `unreachable` does for a socket."""
    is_end = isinstance(root_cause(error), anyio.EndOfStream | anyio.BrokenResourceError)
    return unreachable(address, EOFError() if is_end else error, tls)


async def open_connection(address: str, tls: ssl.SSLContext | None) -> Opened:
    """Connect, and wait for the greeting.

    Raises BrokerUnreachable, TlsFailed, and Refusal if the broker accepts no more connections.
    """
    try:
        stream = await open_stream(address, tls)
        watch_peer(stream.extra(SocketAttribute.raw_socket))
        return await _greeted(address, stream, tls)
    except (OSError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
        raise stream_unreachable(address, error, tls) from error


async def _greeted(address: str, stream: ByteStream, tls: ssl.SSLContext | None) -> Opened:
    data = b""
    try:
        if first := first_bytes(tls):
            await stream.send(first)
        while b"\n" not in data and len(data) < GREETING_MAX:
            data += await stream.receive(GREETING_MAX)
        see_greeting(address, data.partition(b"\n")[0], tls)
    except BaseException:
        await anyio.aclose_forcefully(stream)
        raise
    return Opened(stream, data)


async def say_hello(address: str, hello: bytes, tls: ssl.SSLContext | None) -> None:
    """Log in on a new connection and close it, to check a login. Raises BrokerUnreachable, TlsFailed, Refusal."""
    try:
        async with await open_stream(address, tls) as stream:
            lines = BufferedByteReceiveStream(stream)
            if first := first_bytes(tls):
                await stream.send(first)
            see_greeting(address, await lines.receive_until(b"\n", GREETING_MAX), tls)
            await stream.send(hello)
            reply = await lines.receive_until(b"\n", GREETING_MAX)
    except (
        OSError,
        anyio.EndOfStream,
        anyio.IncompleteRead,
        anyio.DelimiterNotFound,
        anyio.BrokenResourceError,
    ) as error:
        raise stream_unreachable(address, error, tls) from error
    if reply.startswith(b"-"):
        raise replies.refusal_of(reply)
