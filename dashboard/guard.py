"""Reject requests that a browser sends on behalf of foreign pages.

Any page on the internet can make a browser send requests to a dashboard on this machine. Three rules prevent that:

- A request that states the page it comes from must come from a page of the dashboard.
- A request that changes something must state that page.
- The host name of a request must be one of ours. So a foreign name that was made to point to this machine is refused.

A body has at most 16 KiB.
"""

from typing import Any, Final

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tweetwire.runtime.hosts import is_known_host, is_page_of

__all__ = ["Guard"]

BODY_BYTES_MAX: Final = 16 << 10
"""The longest body, which is far longer than a sign-in form or a browser's message."""
LENGTH_DIGITS_MAX: Final = 18
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# Vue compiles its templates in the browser, so the policy for scripts and styles cannot be stricter.
POLICY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data:; font-src 'self' data:; worker-src 'self' blob:; form-action 'self'; base-uri 'self';"
    " object-src 'none'; frame-ancestors 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"referrer-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


class Guard:
    """Middleware around `app`.

    `names` are the host names under which browsers may reach it. IP addresses are always allowed.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on; add the security headers to every response."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif reason := self._reason_against(scope):
            await self._refuse(scope, receive, send, reason)
        elif scope["type"] == "websocket" or scope["method"] in READING:
            await self._app(scope, receive, _with_headers(send))
        elif (body := await _body(scope, receive)) is None:
            await PlainTextResponse(f"a body has at most {BODY_BYTES_MAX} bytes\n", 413)(scope, receive, send)
        else:
            await self._app(scope, _replaying(body, receive), _with_headers(send))

    def _reason_against(self, scope: Scope) -> str | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if not is_known_host(host, self._names):
            return f"this dashboard is not known as {host!r}; name it with --allowed-host\n"
        origin = headers.get(b"origin")
        if origin is None:
            is_reading = scope["type"] == "websocket" or scope["method"] in READING
            return None if is_reading else "a request that changes something must come from a page of the dashboard\n"
        if not is_page_of(origin.decode("latin-1"), host):
            return "this request comes from a page that is not the dashboard's\n"
        return None

    @staticmethod
    async def _refuse(scope: Scope, receive: Receive, send: Send, reason: str) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": reason.strip()[:100]})
        else:
            await PlainTextResponse(reason, 403)(scope, receive, send)


async def _body(scope: Scope, receive: Receive) -> bytes | None:
    """Return a request's whole body, or None as soon as it is too long or if the client disconnects."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > LENGTH_DIGITS_MAX or int(length) > BODY_BYTES_MAX:
        return None
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            # An incomplete form must not be handled as a complete one; no client waits for the response.
            return None
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields the body that was already read, then all later messages."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: list[Any] = list(message.get("headers", []))
            message = {**message, "headers": [*headers, *HEADERS]}
        await send(message)

    return send_with_headers
