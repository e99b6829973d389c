"""One request with its body, its parameters and its user."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from typing import Final

import anyio
from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope, Send

from broker.gateways.http.answers import HttpError
from broker.gateways.http.bodies import Bodies
from broker.gateways.http.credentials import Visitor
from broker.gateways.http.errand import Errand, Gone
from broker.gateways.http.options import HttpOptions
from broker.gateways.http.protocol import GuardedHttp
from broker.server import Server
from tweetwire.protocol import check_name
from tweetwire.protocol.errors import Refusal

__all__ = ["Call"]

WORD_CHARACTERS_MAX: Final = 1_000


class Call:
    """A request of a user that was identified. Actions read it and return an answer."""

    __slots__ = (
        *("_bodies", "_query", "_receive", "_send", "always", "headers", "options", "params", "protocol", "server"),
        "visitor",
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        server: Server,
        options: HttpOptions,
        bodies: Bodies,
        protocol: GuardedHttp,
        visitor: Visitor,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        always: Sequence[tuple[bytes, bytes]],
    ) -> None:
        self.server = server
        self.options = options
        self.protocol = protocol
        self.visitor = visitor
        self.params = params
        self.headers = headers
        # The headers of every answer
        self.always = always
        self._send = send
        self._receive = receive
        self._bodies = bodies
        self._query = QueryParams(scope["query_string"])

    @property
    def topic(self) -> str:
        """The topic in the path. Raises Refusal ``bad_name``."""
        return check_name(self.params["topic"])

    @property
    def subscription(self) -> str:
        """The subscription in the path, or in the parameter `as`. Raises Refusal ``bad_name``."""
        return check_name(self.params.get("name") or self.word("as") or "")

    @property
    def peer(self) -> str:
        """The client's address for reports."""
        client = self.protocol.client
        return "" if client is None else f"{client[0]}:{client[1]}"

    def check_query(self, *known: str) -> None:
        """Raise Refusal ``bad_arguments`` for a parameter that is unknown or occurs twice."""
        names = [name for name, _ in self._query.multi_items()]
        for name in names:
            if name not in known:
                text = f"unknown parameter {name[:40]!r}; this path has: {', '.join(known) or 'none'}"
                raise Refusal("bad_arguments", text)
            if names.count(name) > 1:
                raise Refusal("bad_arguments", f"parameter {name!r} occurs twice")

    def word(self, name: str, default: str | None = None) -> str | None:
        """Return a parameter, which becomes one word of a line. Raises Refusal ``bad_arguments`` if it is not one word."""
        text = self._query.get(name, default)
        if text is not None and not is_word(text):
            raise Refusal("bad_arguments", f"parameter {name} must be one word, not {text[:40]!r}")
        return text

    def words(self, *names: str) -> str:
        """Return the given ones of these parameters as options of a line, each after a space."""
        return "".join(f" {name}={value}" for name in names if (value := self.word(name)) is not None)

    def errand(self) -> AbstractContextManager[Errand]:
        """Begin a session for this call, until the end of the block."""
        visitor = self.visitor
        return closing(Errand(self.server, self.options.limits, visitor.name, visitor.access, self.peer))

    async def body(self) -> bytes:
        """Read the whole body, within the limits. Raises Refusal and HttpError; a partial body is never returned."""
        with anyio.move_on_after(self.options.limits.stalled_s):
            return await self._bodies.read(self.headers, self._receive)
        raise HttpError(408, "timeout", "the body did not arrive in time", (("connection", "close"),))

    async def begin(self, content_type: str) -> None:
        """Begin an answer that is sent in parts."""
        headers = [(b"content-type", content_type.encode()), (b"cache-control", b"no-cache"), *self.always]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def send_part(self, part: bytes) -> None:
        """Send a part. This waits while the client does not read. Raises Gone if the client has left."""
        await self._send({"type": "http.response.body", "body": part, "more_body": True})
        if self.protocol.transport.is_closing():
            raise Gone

    async def end(self) -> None:
        """End an answer that was sent in parts."""
        await self._send({"type": "http.response.body", "body": b""})


def is_word(text: str) -> bool:
    """Whether a text is one printable word of a line."""
    return 0 < len(text) <= WORD_CHARACTERS_MAX and text.isprintable() and not any(one.isspace() for one in text)
