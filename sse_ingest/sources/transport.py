"""A transport for httpx that reads an event stream with the standard library's HTTP client.

httpx uses h11 by default, which takes about 40 µs for a small chunk; http.client takes 9 µs. httpx still handles addresses,
headers and redirects. If the environment names a proxy, httpx also handles the connection.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from io import BufferedReader
from socket import socket
from typing import Any
from urllib.request import getproxies

import httpx

from sse_ingest.sources.chunked import Chunks

__all__ = ["client", "get"]

REDIRECTS_MAX = 20
_PIECE_BYTES = 1 << 16
_CONNECTED = "connection.connect_tcp.complete"


def client(timeout: httpx.Timeout) -> httpx.Client:
    """Return a client that makes a new connection for each request.

    The server may close an idle connection at the moment it is reused, which would look like a loss.
    """
    mounts = None if getproxies().keys() - {"no"} else {"all://": _Transport()}
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.Client(timeout=timeout, limits=limits, mounts=mounts, follow_redirects=False)


@contextmanager
def get(
    http: httpx.Client, url: str, headers: httpx.Headers, on_connected: Callable[[socket], None]
) -> Iterator[httpx.Response]:
    """Request `url` and yield the response after redirects, as soon as its head has arrived.

    httpx drops the header `Authorization` if a redirect leads to another host. It would also read the body of each redirect to
    its end, which may never come. So this function follows redirects itself, without reading their bodies.

    Args:
        http: a client from `client`.
        url: the address.
        headers: the request's headers.
        on_connected: called with the socket of each connection, before anything is sent on it.
    """

    def trace(event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(".complete") and (way := _socket_of(info.get("return_value"))) is not None:
            on_connected(way)

    request = http.build_request("GET", url, headers=headers, extensions={"trace": trace})
    for _ in range(REDIRECTS_MAX):
        response = http.send(request, stream=True)
        try:
            if response.next_request is None:
                yield response
                return
            request = response.next_request
        finally:
            response.close()
    raise httpx.TooManyRedirects(f"more than {REDIRECTS_MAX} redirects", request=request)


def _socket_of(connected: Any) -> socket | None:
    """Return the socket from the result of a connect step of httpcore or of our transport, None for other results."""
    if not isinstance(connected, socket) and hasattr(connected, "get_extra_info"):
        connected = connected.get_extra_info("socket")
    return connected if isinstance(connected, socket) else None


class _Transport(httpx.BaseTransport):
    """Raises OSError unchanged, because the reader of an endless stream expects it anyway."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        timeout = request.extensions["timeout"]
        connection = _connection(request.url, timeout["connect"])
        try:
            connection.connect()
            way: socket = connection.sock
            way.settimeout(timeout["read"])
            request.extensions["trace"](_CONNECTED, {"return_value": way})
            connection.putrequest(
                request.method, request.url.raw_path.decode(), skip_host=True, skip_accept_encoding=True
            )
            for name, value in request.headers.raw:
                _put_header(connection, name, value)
            connection.endheaders()
            response = connection.getresponse()
            if response.status < httpx.codes.OK or response.msg.defects:
                # http.client skips only status 100, and drops all headers after one that is not valid.
                raise httpx.RemoteProtocolError(f"the response cannot be read: HTTP {response.status}")
        except BaseException as error:
            connection.close()
            if isinstance(error, HTTPException):
                raise httpx.RemoteProtocolError(str(error) or type(error).__name__) from error
            raise
        return httpx.Response(
            response.status,
            headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.getheaders()],
            stream=_Body(connection, response),
            extensions={"reason_phrase": response.reason.encode("latin-1")},
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
    raise httpx.RemoteProtocolError("the server closed the stream before its end")


def _put_header(connection: HTTPConnection, name: bytes, value: bytes) -> None:
    try:
        connection.putheader(name, value)
    except ValueError:
        # The original error's text contains the value, which may be a token.
        raise httpx.LocalProtocolError(
            f"the header {name.decode('latin-1')} has characters that no header may have"
        ) from None


def _connection(url: httpx.URL, timeout_s: float) -> HTTPConnection:
    host = url.raw_host.decode("ascii")
    if url.scheme == "https":
        return HTTPSConnection(host, url.port or 443, timeout=timeout_s, context=httpx.create_ssl_context())
    return HTTPConnection(host, url.port or 80, timeout=timeout_s)
