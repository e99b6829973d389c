"""What a browser may ask of us, whatever page it was on when it asked.

Every page of the internet can make a browser send requests to a dashboard on this machine. So a request that says which
page it comes from must come from one of ours, one that changes something must say it, and the name it was sent to must
be ours: a foreign name that was made to point here is no way in.
"""

from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard"]

READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# Vue compiles its templates in the browser, so scripts and styles cannot be narrower.
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
    """Stands before `app`; `names` are those by which browsers may reach it, addresses of hosts always are."""

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on and add the headers that every answer has."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif reason := self._reason_against(scope):
            await self._refuse(scope, receive, send, reason)
        else:
            await self._app(scope, receive, _with_headers(send))

    def _reason_against(self, scope: Scope) -> str | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._is_ours(host):
            return f"this dashboard is not reached as {host!r}; name it with --allowed-host\n"
        origin = headers.get(b"origin")
        if origin is None:
            is_reading = scope["type"] == "websocket" or scope["method"] in READING
            return None if is_reading else "what changes something must come from a page of the dashboard\n"
        if urlsplit(origin.decode("latin-1")).netloc.lower() != host.lower():
            return "this comes from a page that is not the dashboard's\n"
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        try:
            ip_address(name)
        except ValueError:
            return name in self._names
        return True

    @staticmethod
    async def _refuse(scope: Scope, receive: Receive, send: Send, reason: str) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": reason.strip()[:100]})
        else:
            await PlainTextResponse(reason, 403)(scope, receive, send)


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: list[Any] = list(message.get("headers", []))
            message = {**message, "headers": [*headers, *HEADERS]}
        await send(message)

    return send_with_headers
