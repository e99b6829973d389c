"""How httpx gets its bytes from an event stream: the standard library's HTTP client under httpx's own API.

A stream of small chunks costs some 40 µs a chunk through h11, which httpx has by default; http.client reads one in 9.
Everything above the bytes (redirects, headers, decoding) stays httpx's, and where the environment names a proxy, the way
there as well.
"""

from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from io import BufferedReader
from socket import socket
from urllib.request import getproxies

import httpx

from sse_ingest.sources.chunked import Chunks

__all__ = ["client", "socket_of"]

_PIECE_BYTES = 1 << 16


def client(timeout: httpx.Timeout, prepare: Callable[[httpx.Request], None]) -> httpx.Client:
    """Return a client that makes a connection for each request, and has each prepared, also those of redirects.

    A connection that is used again may be closed by the server just then, which would look like a loss.
    """
    mounts = None if getproxies().keys() - {"no"} else {"all://": _Transport()}
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.Client(
        timeout=timeout, limits=limits, mounts=mounts, follow_redirects=True, event_hooks={"request": [prepare]}
    )


def socket_of(response: httpx.Response) -> socket:
    """Return the socket that a response is read from."""
    extensions = response.extensions
    found = extensions["socket"] if "socket" in extensions else extensions["network_stream"].get_extra_info("socket")
    if not isinstance(found, socket):
        raise TypeError(f"a response is read from a {type(found).__name__}")
    return found


class _Transport(httpx.BaseTransport):
    """Raises OSError as it is: who reads a stream for ever has to expect it anyway."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        timeout = request.extensions["timeout"]
        connection = _connection(request.url, timeout["connect"])
        try:
            connection.connect()
            way: socket = connection.sock
            way.settimeout(timeout["read"])
            connection.putrequest(
                request.method, request.url.raw_path.decode(), skip_host=True, skip_accept_encoding=True
            )
            for name, value in request.headers.raw:
                _put_header(connection, name, value)
            connection.endheaders()
            response = connection.getresponse()
            if response.status < httpx.codes.OK or response.msg.defects:
                # http.client passes over 100 alone, and forgets what stands behind a header that is none.
                raise httpx.RemoteProtocolError(f"an answer that cannot be read: HTTP {response.status}")
        except BaseException as error:
            connection.close()
            if isinstance(error, HTTPException):
                raise httpx.RemoteProtocolError(str(error) or type(error).__name__) from error
            raise
        return httpx.Response(
            response.status,
            headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.getheaders()],
            stream=_Body(connection, response),
            extensions={"socket": way, "reason_phrase": response.reason.encode("latin-1")},
        )


class _Body(httpx.SyncByteStream):
    def __init__(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        self._connection = connection
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from _unchunked(self._response.fp) if self._response.chunked else _pieces(self._response)
        except HTTPException as error:
            raise httpx.RemoteProtocolError(str(error) or type(error).__name__) from error

    def close(self) -> None:
        self._response.close()
        self._connection.close()


def _pieces(body: BufferedReader | HTTPResponse) -> Iterator[bytes]:
    while piece := body.read1(_PIECE_BYTES):
        yield piece


def _unchunked(body: BufferedReader) -> Iterator[bytes]:
    chunks = Chunks()
    for piece in _pieces(body):
        if content := chunks.feed(piece):
            yield content
        if chunks.is_ended:
            return
        if chunks.fault is not None:
            raise httpx.RemoteProtocolError(chunks.fault)
    raise httpx.RemoteProtocolError("the server closed the stream in the midst of it")


def _put_header(connection: HTTPConnection, name: bytes, value: bytes) -> None:
    try:
        connection.putheader(name, value)
    except ValueError:
        # Its text has the value, which may be a token.
        raise httpx.LocalProtocolError(
            f"the header {name.decode('latin-1')} has characters that none may have"
        ) from None


def _connection(url: httpx.URL, timeout_s: float) -> HTTPConnection:
    host = url.raw_host.decode("ascii")
    if url.scheme == "https":
        return HTTPSConnection(host, url.port or 443, timeout=timeout_s, context=httpx.create_ssl_context())
    return HTTPConnection(host, url.port or 80, timeout=timeout_s)
