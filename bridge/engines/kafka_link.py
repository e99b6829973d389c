"""How a task reaches a Kafka cluster: the login, requests of the administration, and errors in the terms of `bridge.central`.

The library's calls block, so they run in a thread, one at a time for each task. No call blocks longer than `SLICE_S`, and a
longer wait is a row of calls. So a task that is cancelled ends within one slice, and no thread uses an object that was closed.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from msgspec import Struct

from bridge.central import EngineRefused, EngineUnreachable

__all__ = ["SLICE_S", "KafkaLink", "KafkaLogin", "KafkaThread", "error_of", "translated"]

SLICE_S: Final = 0.2
"""The longest time that one call of the library blocks, in seconds."""
_RECONNECT_MS_MAX: Final = 1000
_NO_LOG: Final = 0
"""The library writes its log to stderr. Every error also reaches a caller, who logs it in the form of the program."""

_REFUSALS: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.POLICY_VIOLATION,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)

_SILENCE: Final = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._TIMED_OUT_QUEUE})
_LASTING: Final = frozenset(
    {KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE}
)

T = TypeVar("T")


class KafkaLogin(Struct, frozen=True):
    """How to reach a cluster, through any of its servers. No secret is part of the text of this object."""

    hosts: tuple[tuple[str, int], ...]
    user: str | None = None
    password: str | None = None
    mechanism: str = "SCRAM-SHA-512"
    is_tls: bool = False
    tls_ca: Path | None = None
    timeout_s: float = 10.0

    def __repr__(self) -> str:
        """Show the addresses only."""
        return f"KafkaLogin({self.servers})"

    @property
    def servers(self) -> str:
        """The addresses of the servers, separated by commas."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)

    @property
    def timeout_ms(self) -> int:
        """The longest wait for one answer, in milliseconds."""
        return max(1000, int(self.timeout_s * 1000))

    def config(self, note_error: Callable[[KafkaError], None]) -> dict[str, Any]:
        """Return the library's settings that all its clients share. `note_error` gets the errors of connections."""
        protocol = ("SASL_" if self.user else "") + ("SSL" if self.is_tls else "PLAINTEXT")
        found: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "client.id": "tweetwire-bridge",
            "security.protocol": protocol,
            "socket.timeout.ms": self.timeout_ms,
            "reconnect.backoff.max.ms": _RECONNECT_MS_MAX,
            "log_level": _NO_LOG,
            "error_cb": note_error,
        }
        if self.user:
            found |= {"sasl.mechanism": self.mechanism, "sasl.username": self.user, "sasl.password": self.password}
        if self.is_tls and self.tls_ca is not None:
            found["ssl.ca.location"] = str(self.tls_ca)
        return found


class KafkaThread:
    """Runs the library's blocking calls of one task, one at a time."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(1)

    async def run(self, call: Callable[..., T], *words: Any) -> T:
        """Run a call, and return its result. If the task is cancelled meanwhile, the call still ends."""
        return await anyio.to_thread.run_sync(call, *words, limiter=self._limiter)

    async def repeat(self, call: Callable[[float], None], timeout_s: float) -> None:
        """Repeat a call that may be continued after a timeout, until it succeeds.

        Args:
            call: Gets the longest time to wait. It raises KafkaException if it needs more time, or if it fails.
            timeout_s: The longest time for all calls, in seconds.

        Raises:
            KafkaException: The call has failed, or it needs more time than there is.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                await self.run(call, SLICE_S)
            except KafkaException as error:
                if not error_of(error).retriable() or time.monotonic() > deadline:
                    raise
            else:
                return


class KafkaLink:
    """The requests that a task sends to the administration of a cluster.

    Attributes:
        login: The cluster.
        thread: Runs the blocking calls of the task.
    """

    def __init__(self, login: KafkaLogin) -> None:
        self.login = login
        self.thread = KafkaThread()
        self._admin: AdminClient | None = None
        self._noted: KafkaError | None = None

    async def connect(self) -> None:
        """Connect again at the next request."""
        await self.aclose()
        self._noted = None
        self._admin = AdminClient(self.login.config(self._note))

    async def ask(self, request: Callable[[AdminClient, float], dict[Any, Future[T]]]) -> T:
        """Send a request about one thing, and return the answer.

        Args:
            request: Gets the client and the longest wait in seconds. It returns one future.

        Raises:
            KafkaException: The cluster answers with an error, or not at all.
            EngineUnreachable: There is no connection.
        """
        admin = self._admin
        if admin is None:
            raise EngineUnreachable("there is no connection")
        (future,) = request(admin, self.login.timeout_s).values()
        found = asyncio.wrap_future(future)
        # The library sets the result also after a cancellation of the task. So the future itself is never cancelled.
        found.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return await asyncio.shield(found)

    def config(self) -> dict[str, Any]:
        """Return the library's settings for a client of this task."""
        return self.login.config(self._note)

    def check(self) -> None:
        """Raise EngineUnreachable if the connections of a client of this task have ended by an error that lasts."""
        if self._noted is not None and self._noted.code() in _LASTING:
            raise translated(self._noted)

    def failure(self, error: KafkaException) -> EngineUnreachable:
        """Return an error of a request in the terms of `bridge.central`, with the reason that a connection has given."""
        if self._admin is not None:
            self._admin.poll(0)
        found = error_of(error)
        if self._noted is not None and found.code() in _SILENCE:
            return translated(self._noted)
        return translated(found)

    async def aclose(self) -> None:
        """Close the connections. `connect` makes new ones."""
        held, self._admin = [self._admin], None
        # The library waits for its threads when the last reference is deleted.
        await self.thread.run(held.clear)

    def _note(self, error: KafkaError) -> None:
        self._noted = error


def error_of(error: KafkaException) -> KafkaError:
    """Return the library's description of an exception."""
    found: KafkaError = error.args[0]
    return found


def translated(error: KafkaError) -> EngineUnreachable:
    """Return an error in the terms of `bridge.central`."""
    text = " ".join(error.str().split()) or error.name()
    return EngineRefused(text) if error.code() in _REFUSALS else EngineUnreachable(text)
