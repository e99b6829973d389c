"""The way to the broker for one who looks: asked once a second for its figures, whoever and how many look at them.

Always true: `history` is what was last known, also while the broker is away, and `state` says why nothing newer comes.
While nobody looks the figures are asked for seldom, so that a page left open on a screen that is off costs nothing.
"""

import ssl
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final, TypeVar

import anyio
import msgspec
import structlog

from broker.client import Client
from broker.dashboard.history import History
from broker.dashboard.tail import Tail
from broker.errors import BrokerError, Refusal, TlsFailed
from broker.events import StoredEvent
from broker.protocol.replies import Page

__all__ = ["Away", "Link", "State"]

LOOK_EVERY_S: Final = 1.0
LOOK_SELDOM_S: Final = 10.0
LOOKED_AT_S: Final = 15.0
SHARE_MAX: Final = 0.05
"""At most this share of the time the broker is busy with telling how things are."""
ANSWER_S: Final = 10.0
PAUSE_S: Final = 0.5
TAIL_MAX: Final = 120

T = TypeVar("T")

logger = structlog.stdlib.get_logger()


class State(Enum):
    """Where a link is: before the first answer, answered, no broker there, or not let in."""

    BEGINNING = "beginning"
    THERE = "there"
    AWAY = "away"
    REFUSED = "refused"
    CLOSED = "closed"


class Away(BrokerError):
    """The broker cannot be asked now."""

    def __init__(self, address: str) -> None:
        super().__init__(f"no broker answers at {address}")


class Link:
    """A connection in the name of `user`, or of nobody where the broker has no users."""

    def __init__(self, address: str, *, user: str, token: str | None, tls: ssl.SSLContext | None) -> None:
        self.address = address
        self.user = user
        self.is_signed_in = token is not None
        self.history = History()
        self.state = State.BEGINNING
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
        self._tails: dict[str, Tail] = {}

    @property
    def latest(self) -> Any:
        """The last answer to ``stats``, None before the first."""
        look = self.history.latest
        return None if look is None else look.stats

    async def run(self) -> None:
        """Look until closed; a broker that goes away is looked for until it is back.

        One that does not let nobody in is asked again when somebody comes; one that does not let somebody in is not.
        """
        with self._scope:
            while not (self.state is State.REFUSED and self.is_signed_in):
                try:
                    await self._look_while_there()
                except TlsFailed as error:
                    self._tell(error.with_remedy("--"))
                except (BrokerError, TimeoutError, OSError):
                    pass
                if self.state is State.REFUSED:
                    await anyio.sleep(LOOK_SELDOM_S)
                    await self._wanted()
                else:
                    self._become(State.AWAY)
                    await anyio.sleep(PAUSE_S)

    def _tell(self, trouble: str) -> None:
        """Log what only who runs this can mend, once."""
        if trouble != self._told:
            self._told = trouble
            logger.error("the broker cannot be used", reason=trouble)

    def close(self) -> None:
        """End it for everybody who looks through it."""
        self._become(State.CLOSED)
        self._token = None
        self._scope.cancel()

    async def settled(self) -> State:
        """Wait until it is known whether there is a broker that lets us in."""
        await self._has_state.wait()
        return self.state

    def look(self) -> None:
        """Say that somebody looks."""
        self._looked_at = time.monotonic()
        self._is_wanted.set()

    async def command(self, line: str, patience_s: float = ANSWER_S) -> str:
        """Have a command carried out within a time. Raises Away, Refusal."""
        return await self._ask(lambda client: client.command(line), patience_s)

    async def report(self, line: str, patience_s: float = ANSWER_S) -> Any:
        """Return the JSON that a command answers with. Raises Away, Refusal."""
        reply = await self.command(line, patience_s)
        start = min((at for at in (reply.find(" {"), reply.find(" [")) if at >= 0), default=-1)
        return None if start < 0 else msgspec.json.decode(reply[start + 1 :])

    async def read(self, topic: str, start: int | str, limit: int) -> Page:
        """Read up to `limit` events of a topic's log. Raises Away, Refusal."""
        return await self._ask(lambda client: client.read(topic, start, limit=limit))

    async def newest(self, topic: str) -> list[StoredEvent]:
        """Return a topic's last `TAIL_MAX` events, oldest first; none where there are none to be seen. Raises Away, Refusal."""
        report = (self.latest or {"topics": {}})["topics"].get(topic)
        if report is None:
            return []
        tail = self._tails.setdefault(topic, Tail(TAIL_MAX))
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
        """Find out who we are to the broker."""
        try:
            await self._look()
            self.is_admin = await self._may_administer()
        except Refusal as refusal:
            if refusal.code == "unauthenticated":
                self._become(State.REFUSED)
            raise
        listed = await self.command("help")
        self.verbs = frozenset(listed.partition("commands: ")[2].partition(";")[0].split())
        self._become(State.THERE)

    async def _may_administer(self) -> bool:
        """Ask for something that only an administrator is told."""
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
        """Wait for the next look: longer while nobody is there to see it, or the broker has much to tell or to do."""
        await anyio.sleep(min(max(LOOK_EVERY_S, self._answer_s / SHARE_MAX), LOOK_SELDOM_S))
        if time.monotonic() - self._looked_at > LOOKED_AT_S:
            with anyio.move_on_after(LOOK_SELDOM_S):
                await self._wanted()

    async def _wanted(self) -> None:
        """Wait until somebody looks."""
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

    def _become(self, state: State) -> None:
        if self.state is not State.CLOSED:
            self.state = state
        self._has_state.set()
