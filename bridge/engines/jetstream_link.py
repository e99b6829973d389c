"""One connection to a NATS server, and its errors in the terms of `bridge.central`."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import nats.errors
from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from bridge.central import EngineRefused, EngineUnreachable

__all__ = ["ApiError", "JetStreamLink", "NatsLogin", "status_of"]

_API: Final = "$JS.API."
_NO_RESPONDERS: Final = "503"
_PERMISSIONS: Final = "permissions violation"
_PAUSE_S: Final = 0.01
_CLOSE_S: Final = 2.0

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class NatsLogin(Struct, frozen=True):
    """How to reach a server, or one of the servers of a cluster. No secret is part of the text of this object."""

    hosts: tuple[tuple[str, int], ...]
    user: str | None = None
    password: str | None = None
    token: str | None = None
    credentials: Path | None = None
    is_tls: bool = False
    tls_ca: Path | None = None
    timeout_s: float = 10.0

    def __repr__(self) -> str:
        """Show the addresses only."""
        return f"NatsLogin({', '.join(self.urls())})"

    def urls(self) -> list[str]:
        """Return the addresses of the servers."""
        scheme = "tls" if self.is_tls else "nats"
        return [f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}" for host, port in self.hosts]


class ApiError(EngineRefused):
    """JetStream answers with an error. `number` is its `err_code`, which identifies the error."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


class _Connection(Client):
    """The library's connection, which can also send commands that were built elsewhere."""

    must_be_tls = False

    async def send_commands(self, commands: Sequence[bytes]) -> None:
        """Send commands in one write: publishing one message at a time takes most of the time of a batch."""
        await self._send_command(b"".join(commands))
        await self._flush_pending()

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        """Return the same headers as the library's method, in a third of the time. Reading spends most of its time here."""
        found: dict[str, str] = {}
        for line in raw.decode(errors="replace").split("\r\n"):
            name, colon, value = line.partition(":")
            name = name.strip()
            if colon and name.isascii() and " " not in name and "\t" not in name:
                found[name] = value.strip()
        return found

    def _connect_command(self) -> bytes:
        # The library would send the password in plain text to a server that does not ask for TLS.
        if self.must_be_tls and not self._server_info.get("tls_required"):
            raise nats.errors.Error("the server has no TLS")
        command: bytes = super()._connect_command()
        return command


class JetStreamLink:
    """A connection for one task.

    After an error, `connect` makes another one, so that a late reply is not taken for the reply to a later command.
    """

    def __init__(self, login: NatsLogin) -> None:
        self.login = login
        self._client: _Connection | None = None
        self._inbox = ""
        self._number = 0
        self._waiting: dict[str, asyncio.Future[Msg]] = {}
        self._ended: Exception | None = None

    @property
    def payload_max(self) -> int:
        """The most bytes of headers and payload that the server takes."""
        return self._connected().max_payload

    async def connect(self) -> None:
        """Connect again, to any of the servers. Raises EngineUnreachable."""
        await self.aclose()
        login = self.login
        client = self._client = _Connection()
        client.must_be_tls = login.is_tls
        self._ended = None
        try:
            with anyio.fail_after(login.timeout_s * len(login.hosts)):
                await client.connect(
                    login.urls(),
                    # After a reconnection the library would send its buffer again; the position must be read first.
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=_PAUSE_S,  # type: ignore[arg-type]
                    connect_timeout=login.timeout_s,  # type: ignore[arg-type]
                    error_cb=self._note_error,
                    disconnected_cb=self._note_end,
                    user=login.user,
                    password=login.password,
                    token=login.token,
                    user_credentials=str(login.credentials) if login.credentials else None,
                    tls=_context(login) if login.is_tls else None,
                    name="tweetwire-bridge",
                )
                self._inbox = client.new_inbox()
                await client.subscribe(f"{self._inbox}.*", cb=self._take_reply)
        except (nats.errors.Error, OSError, TimeoutError, ValueError) as error:
            raise self._translated(self._ended or error) from error

    async def api(self, command: str, body: Any = None) -> Any:
        """Send a request of the JetStream API, and return its answer. Raises EngineUnreachable, also as ApiError."""
        payload = b"" if body is None else _encode(body)
        token, reply = self.reply_subject()
        head = f"PUB {_API}{command} {reply} {len(payload)}\r\n".encode()
        return self.answer_of(await self.exchange([b"%b%b\r\n" % (head, payload)], token))

    @staticmethod
    def answer_of(message: Msg) -> Any:
        """Return the JSON of a reply. Raises EngineUnreachable, also as ApiError."""
        if status_of(message) == _NO_RESPONDERS:
            raise EngineUnreachable("JetStream does not answer; it is starting, has no leader, or is not enabled")
        try:
            answer = _decode(message.data)
        except msgspec.MsgspecError as error:
            raise EngineUnreachable(f"the server answers {message.data[:80]!r}") from error
        if "error" in answer:
            found = answer["error"]
            raise ApiError(int(found.get("err_code", 0)), str(found.get("description", "an error without a text")))
        return answer

    def reply_subject(self) -> tuple[str, str]:
        """Return a token and a subject for the reply to the next command."""
        self._number += 1
        return str(self._number), f"{self._inbox}.{self._number}"

    async def exchange(self, commands: Sequence[bytes], token: str) -> Msg:
        """Send commands, and return the reply to the subject of `token`. Raises EngineUnreachable."""
        client = self._connected()
        future: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        try:
            with anyio.fail_after(self.login.timeout_s):
                await client.send_commands(commands)
                return await future
        except TimeoutError as error:
            raise EngineUnreachable(f"no answer within {self.login.timeout_s:g} s") from error
        except (nats.errors.Error, OSError) as error:
            raise self._translated(error) from error
        finally:
            self._waiting.pop(token, None)

    async def subscribe(self, take: Callable[[Msg], None]) -> tuple[str, Subscription]:
        """Return a new subject, whose messages go to a function. Raises EngineUnreachable."""
        client = self._connected()

        async def pass_on(message: Msg) -> None:
            take(message)

        subject = client.new_inbox()
        try:
            return subject, await client.subscribe(subject, cb=pass_on)
        except (nats.errors.Error, OSError) as error:
            raise self._translated(error) from error

    async def send(self, command: str, body: Any, reply: str) -> None:
        """Send a request of the API whose replies go to a subscription."""
        payload = _encode(body)
        head = f"PUB {_API}{command} {reply} {len(payload)}\r\n".encode()
        await self._connected().send_commands([b"%b%b\r\n" % (head, payload)])

    def on_end(self, future: "asyncio.Future[Any]") -> None:
        """Let a future fail when the connection ends."""
        self._waiting[f"end {id(future)}"] = future
        future.add_done_callback(lambda _: self._waiting.pop(f"end {id(future)}", None))

    async def aclose(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_S):
                await client.close()

    def _connected(self) -> _Connection:
        client = self._client
        if client is None or client.is_closed:
            raise self._translated(self._ended or EngineUnreachable("there is no connection"))
        return client

    async def _take_reply(self, message: Msg) -> None:
        future = self._waiting.get(message.subject.rpartition(".")[2])
        if future is not None and not future.done():
            future.set_result(message)

    async def _note_error(self, error: Exception) -> None:
        text = str(error)
        if _PERMISSIONS in text.lower():
            self._fail_all(EngineRefused(text))
        self._ended = error

    async def _note_end(self) -> None:
        self._fail_all(self._translated(self._ended or EngineUnreachable("the connection was lost")))

    def _fail_all(self, error: Exception) -> None:
        for future in [*self._waiting.values()]:
            if not future.done():
                future.set_exception(error)

    def _translated(self, error: Exception) -> Exception:
        if isinstance(error, EngineUnreachable):
            return error
        text = " ".join(str(error).removeprefix("nats: ").split()) or type(error).__name__
        return EngineUnreachable(text)


def status_of(message: Msg) -> str:
    """Return the status of a message that the server itself has made, "" for others."""
    return str((message.headers or {}).get("Status", ""))


def _context(login: NatsLogin) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(login.tls_ca) if login.tls_ca else None)
