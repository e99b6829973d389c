"""Serve one request: check it, find its route and its user, run the action, and send the answer.

Always true: every error becomes one answer with a code and a sentence, and a bug is logged and ends one request alone.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Final

import structlog
from starlette.types import Receive, Scope, Send

from broker.core import NOTHING, PartCounts
from broker.gateways.http.answers import Answer, HttpError, error_of
from broker.gateways.http.bodies import Bodies
from broker.gateways.http.call import Call
from broker.gateways.http.credentials import Visitor, identify
from broker.gateways.http.errand import Gone
from broker.gateways.http.guard import Guard
from broker.gateways.http.options import HttpOptions
from broker.gateways.http.protocol import GuardedHttp, GuardedWebSocket
from broker.gateways.http.routes import Route, Routes
from broker.gateways.http.web_socket import WebSockets
from broker.server import Server
from tweetwire.protocol.errors import Refusal, internal

__all__ = ["Application"]

NO_CONTENT: Final = 204
_SECURITY: Final = (("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer"))

logger = structlog.stdlib.get_logger()


class Application:
    """Serves the requests of all connections."""

    def __init__(self, server: Server, options: HttpOptions, routes: Routes, counts: PartCounts) -> None:
        self._server = server
        self._options = options
        self._routes = routes
        self._counts = counts
        self._guard = Guard(options.names, options.origins)
        self._bodies = Bodies(options.body_bytes_max)
        self._sockets = WebSockets(server, options, self._guard)

    async def serve(self, protocol: GuardedHttp | GuardedWebSocket, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of a connection."""
        self._counts.add("requests")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if isinstance(protocol, GuardedWebSocket):
            await self._sockets.serve(protocol, scope, receive, send, headers)
            return
        try:
            answer = await self._answer(protocol, scope, receive, send, headers)
        except Gone:
            answer = self._farewell(protocol)
        except (Refusal, HttpError) as error:
            self._counts.add("refused")
            answer = error_of(error)
        except Exception as error:
            logger.exception("a bug ended an HTTP request", path=scope["path"][:200])
            answer = error_of(internal(error))
            if protocol.cycle.response_started:
                answer = None
        if answer is not None:
            await self._send(answer, headers, send)
        elif not protocol.transport.is_closing() and not _is_complete(protocol):
            protocol.abort()

    def _farewell(self, protocol: GuardedHttp) -> Answer | None:
        """Answer a request whose session has ended, unless its client is gone or the answer has begun."""
        if protocol.transport.is_closing() or protocol.cycle.response_started:
            return None
        if self._server.broker.is_draining:
            return error_of(Refusal("shutting_down", "this broker is shutting down; ask again when it has restarted"))
        return error_of(Refusal("unauthenticated", "this user was removed"))

    async def _answer(
        self, protocol: GuardedHttp, scope: Scope, receive: Receive, send: Send, headers: Mapping[str, str]
    ) -> Answer | None:
        self._guard.check(headers)
        if scope["method"] == "OPTIONS":
            return self._guard.preflight(headers)
        route, params = self._routes.find(scope["method"], scope["path"])
        visitor = await self._visitor(protocol, route, headers)
        call = Call(
            scope,
            receive,
            send,
            server=self._server,
            options=self._options,
            bodies=self._bodies,
            protocol=protocol,
            visitor=visitor,
            params=params,
            headers=headers,
            always=self._always(headers),
        )
        try:
            return await route.action(call)
        finally:
            protocol.when_lost = None

    async def _visitor(self, protocol: GuardedHttp, route: Route, headers: Mapping[str, str]) -> Visitor:
        """Identify the user. A connection is no longer a stranger once a user is known, or if the broker has no users."""
        place = protocol.place
        if place is None:
            raise Gone
        if self._server.logins.users is not None:
            if route.is_public:
                return Visitor("", NOTHING)
            place.renew(time.monotonic())
        visitor = await identify(self._server.logins, headers.get("authorization"), place.address)
        place.keep()
        return visitor

    def _always(self, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        """Return the headers of every answer to a request."""
        return _encoded([*_SECURITY, *self._guard.headers_for(headers)])

    async def _send(self, answer: Answer, headers: Mapping[str, str], send: Send) -> None:
        named = [("content-type", answer.content_type), ("content-length", str(len(answer.body)))]
        if answer.status == NO_CONTENT:
            named = []
        encoded = [*_encoded([*named, *answer.headers]), *self._always(headers)]
        await send({"type": "http.response.start", "status": answer.status, "headers": encoded})
        await send({"type": "http.response.body", "body": answer.body})


def _encoded(headers: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers]


def _is_complete(protocol: GuardedHttp) -> bool:
    return protocol.cycle is not None and protocol.cycle.response_complete
