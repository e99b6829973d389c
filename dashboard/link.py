"""The connection to the broker for one user, which reads the broker's figures once a second for all open pages.

`history` always holds the last known figures, even while the broker is unreachable; `state` says why no newer ones arrive.
If no page is in view, the figures are read rarely, so that a page on a switched-off screen costs little.
"""

import ssl
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final, TypeVar

import anyio
import msgspec
import structlog

from dashboard.history import History
from dashboard.tail import TopicTail
from tweetwire.client.aio import Client
from tweetwire.protocol.errors import BrokerError, Refusal, TlsFailed
from tweetwire.protocol.events import StoredEvent
from tweetwire.protocol.replies import Page

__all__ = ["Away", "DashboardLink", "LinkState"]

LOOK_EVERY_S: Final = 1.0
LOOK_SELDOM_S: Final = 10.0
LOOKED_AT_S: Final = 15.0
SHARE_MAX: Final = 0.05
"""The largest share of the broker's time that the requests of this link may take."""
ANSWER_S: Final = 10.0
PAUSE_S: Final = 0.5
TAIL_MAX: Final = 120

T = TypeVar("T")

logger = structlog.stdlib.get_logger()


class LinkState(Enum):
    """The state of a link: no answer yet, answering, broker unreachable, login refused, or closed."""

    BEGINNING = "beginning"
    THERE = "there"
    AWAY = "away"
    REFUSED = "refused"
    CLOSED = "closed"


class Away(BrokerError):
    """The broker does not answer now."""

    def __init__(self, address: str) -> None:
        super().__init__(f"no broker answers at {address}")


class DashboardLink:
    """A connection as `user`, or an anonymous one if the broker has no users."""

    def __init__(self, address: str, *, user: str, token: str | None, tls: ssl.SSLContext | None) -> None:
        self.address = address
        self.user = user
        self.is_signed_in = token is not None
        self.history = History()
        self.state = LinkState.BEGINNING
        self.is_admin = False
        self.clients: list[dict[str, Any]] | None = None
        self.verbs: frozenset[str] = frozenset()
        self._token = token
        self._tls = tls
        self._client: Client | None = None
        self._told = ""
        self._answer_s = 0.0
        self._looked_at = time.monotonic()
        self._is_wanted = anyio.Event()
        self._has_state = anyio.Event()
        self._scope = anyio.CancelScope()
        self._tails: dict[str, TopicTail] = {}

    @property
    def latest(self) -> Any:
        """The last answer to ``stats``, None before the first."""
        look = self.history.latest
        return None if look is None else look.stats

    async def run(self) -> None:
        """Read figures until closed, reconnecting to a broker that becomes unreachable.

        A broker that refuses anonymous clients is asked again once a page is opened. A broker that refuses this user is not
        asked again.
        """
        with self._scope:
            while not (self.state is LinkState.REFUSED and self.is_signed_in):
                try:
                    await self._look_while_there()
                except TlsFailed as error:
                    self._tell(error.with_remedy("--"))
                except (BrokerError, TimeoutError, OSError):
                    pass
                if self.state is LinkState.REFUSED:
                    await anyio.sleep(LOOK_SELDOM_S)
                    await self._wanted()
                else:
                    self._become(LinkState.AWAY)
                    await anyio.sleep(PAUSE_S)

    def _tell(self, trouble: str) -> None:
        """Log an error that only the operator can fix, unless it was the last one logged."""
        if trouble != self._told:
            self._told = trouble
            logger.error("broker cannot be used", reason=trouble)

    def close(self) -> None:
        """Close the connection for all pages that use it."""
        self._become(LinkState.CLOSED)
        self._token = None
        self._scope.cancel()

    async def settled(self) -> LinkState:
        """Wait until the state is known, and return it."""
        await self._has_state.wait()
        return self.state

    def look(self) -> None:
        """Record that a page is in view."""
        self._looked_at = time.monotonic()
        self._is_wanted.set()

    async def command(self, line: str, patience_s: float = ANSWER_S) -> str:
        """Send a command and return its reply, within `patience_s` seconds. Raises Away, Refusal."""
        return await self._ask(lambda client: client.command(line), patience_s)

    async def report(self, line: str, patience_s: float = ANSWER_S) -> Any:
        """Return the JSON in the reply to a command. Raises Away, Refusal."""
        reply = await self.command(line, patience_s)
        start = min((at for at in (reply.find(" {"), reply.find(" [")) if at >= 0), default=-1)
        return None if start < 0 else msgspec.json.decode(reply[start + 1 :])

    async def read(self, topic: str, start: int | str, limit: int) -> Page:
        """Read up to `limit` events of a topic's log. Raises Away, Refusal."""
        return await self._ask(lambda client: client.read(topic, start, limit=limit))

    async def newest(self, topic: str) -> list[StoredEvent]:
        """Return a topic's last `TAIL_MAX` events, oldest first; [] if the user may not read it. Raises Away, Refusal."""
        report = (self.latest or {"topics": {}})["topics"].get(topic)
        if report is None:
            return []
        tail = self._tails.setdefault(topic, TopicTail(TAIL_MAX))
        try:
            return await tail.up_to(report["earliest"], report["next"], lambda at, limit: self.read(topic, at, limit))
        except Refusal as refusal:
            if refusal.code == "forbidden":
                return []
            raise

    async def _look_while_there(self) -> None:
        async with Client(
            self.address, name=self.user, token=self._token, tls=self._tls, connect_timeout_s=2.0
        ) as client:
            with anyio.fail_after(ANSWER_S):
                await client.ping()
            self._client = client
            try:
                await self._begin()
                while client.is_connected:
                    await self._pause()
                    await self._look()
            finally:
                self._client = None

    async def _begin(self) -> None:
        """Read the first figures, the permissions of the user, and the broker's commands."""
        try:
            await self._look()
            self.is_admin = await self._may_administer()
        except Refusal as refusal:
            if refusal.code == "unauthenticated":
                self._become(LinkState.REFUSED)
            raise
        listed = await self.command("help")
        self.verbs = frozenset(listed.partition("commands: ")[2].partition(";")[0].split())
        self._become(LinkState.THERE)

    async def _may_administer(self) -> bool:
        """Find out whether the user is an administrator, with a command that only administrators may use."""
        try:
            self.clients = await self.report("clients limit=200")
        except Refusal:
            self.clients = None
        return self.clients is not None

    async def _look(self) -> None:
        began = time.monotonic()
        stats = await self._ask(lambda client: client.stats())
        self._answer_s = time.monotonic() - began
        self.history.note(time.time(), stats)
        if self.is_admin:
            self.clients = await self.report("clients limit=200")

    async def _pause(self) -> None:
        """Wait for the next look: longer if no page is in view, or if the broker's answers take long."""
        await anyio.sleep(min(max(LOOK_EVERY_S, self._answer_s / SHARE_MAX), LOOK_SELDOM_S))
        if time.monotonic() - self._looked_at > LOOKED_AT_S:
            with anyio.move_on_after(LOOK_SELDOM_S):
                await self._wanted()

    async def _wanted(self) -> None:
        """Wait until a page is in view."""
        self._is_wanted = anyio.Event()
        await self._is_wanted.wait()

    async def _ask(self, question: Callable[[Client], Awaitable[T]], patience_s: float = ANSWER_S) -> T:
        client = self._client
        if client is None or not client.is_connected:
            raise Away(self.address)
        try:
            with anyio.fail_after(patience_s):
                return await question(client)
        except TimeoutError as error:
            raise Away(self.address) from error

    def _become(self, state: LinkState) -> None:
        if self.state is not LinkState.CLOSED:
            self.state = state
        self._has_state.set()
