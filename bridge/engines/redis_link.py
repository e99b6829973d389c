"""One connection to a Redis or Valkey server, and its errors in the terms of `bridge.central`."""

import hashlib
from pathlib import Path
from typing import Any, Final

import redis.asyncio
from msgspec import Struct
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ClusterCrossSlotError, MovedError, NoScriptError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from bridge.central import EngineRefused, EngineUnreachable
from tweetwire.protocol.errors import StartError

__all__ = ["RedisLink", "RedisLogin"]

_NO_RETRIES: Final = 0
_NEVER: Final[dict[type[Exception], str]] = {
    MovedError: "belongs to another node of a cluster; give the address of that node",
    ClusterCrossSlotError: "has its positions on another node of a cluster; choose another name",
}
"""The refusals that stay until a person changes the route."""
_WRONG_TYPE: Final = "is not a stream; choose another name, or delete the key"


class RedisLogin(Struct, frozen=True):
    """How to reach a server. The password is never part of the text of this object."""

    host: str
    port: int
    db: int = 0
    user: str | None = None
    password: str | None = None
    is_tls: bool = False
    tls_ca: Path | None = None
    timeout_s: float = 10.0

    def __repr__(self) -> str:
        """Show the address only."""
        return f"RedisLogin({self.host}:{self.port})"


class RedisLink:
    """A connection for one task.

    After an error, `connect` makes another one, so that a late reply is not taken for the reply to a later command.
    """

    def __init__(self, login: RedisLogin, key: str) -> None:
        self._login = login
        self._key = key
        self._client: redis.asyncio.Redis | None = None

    async def connect(self) -> None:
        """Connect again. Raises EngineUnreachable."""
        await self.aclose()
        login = self._login
        tls: dict[str, Any] = {"ssl": True, "ssl_ca_certs": login.tls_ca and str(login.tls_ca)} if login.is_tls else {}
        client = redis.asyncio.Redis(
            host=login.host,
            port=login.port,
            db=login.db,
            username=login.user,
            password=login.password,
            socket_timeout=login.timeout_s,
            socket_connect_timeout=login.timeout_s,
            # The library would send a write again whose reply was lost; the position must be read first.
            retry=Retry(NoBackoff(), _NO_RETRIES),
            retry_on_error=[],
            protocol=2,
            driver_info=None,
            single_connection_client=True,
            **tls,
        )
        self._client = client
        try:
            await client.initialize()
        except (RedisError, OSError) as error:
            raise self._translated(error) from error

    async def command(self, *words: str | bytes | int) -> Any:
        """Send one command, and return its reply. Raises EngineUnreachable, or StartError for a route that cannot work."""
        client = self._client
        if client is None:
            raise EngineUnreachable("there is no connection")
        try:
            return await client.execute_command(*words)  # type: ignore[no-untyped-call]
        except NoScriptError:
            raise
        except (RedisError, OSError) as error:
            raise self._translated(error) from error

    async def run(self, script: str, keys: tuple[str, str], *words: str | bytes | int) -> Any:
        """Run a script, which the server may already know. Raises the errors of `command`."""
        digest = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
        try:
            return await self.command("EVALSHA", digest, len(keys), *keys, *words)
        except NoScriptError:
            # The server does not know the script, so nothing has run.
            return await self.command("EVAL", script, len(keys), *keys, *words)

    async def aclose(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _translated(self, error: Exception) -> Exception:
        text = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, RedisConnectionError | RedisTimeoutError | OSError):
            return EngineUnreachable(text)
        never = _NEVER.get(type(error), _WRONG_TYPE if text.startswith("WRONGTYPE") else "")
        if never:
            return StartError(f"{self._key} at {self._login.host}:{self._login.port} {never}")
        return EngineRefused(text)
