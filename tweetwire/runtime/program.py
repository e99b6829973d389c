"""Run a program of the stack: its settings, logs, metrics, signals and exit status.

A program is a settings class and an async function that serves until `stop` is set. `run` reads the settings from flags
and the environment, calls the function, and returns the exit status:

- 0 after an orderly end, unless the function returns another status
- 1 after a bug, with its traceback
- 2 with one sentence, for a wrong setting, a port in use or a missing server
- 130 after a second signal
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Annotated, Literal, Self, TypeVar

import anyio
import structlog
from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from tweetwire.protocol import check_name
from tweetwire.protocol.errors import (
    BrokerUnreachable,
    ProtocolError,
    Refusal,
    StartError,
    SubscriptionEnded,
    TlsFailed,
    TlsFileUnusable,
)
from tweetwire.runtime.broker_flags import (
    BROKER_ADDRESS,
    BrokerAddress,
    TlsAuthority,
    TlsCertificate,
    TlsKey,
    TlsSwitch,
)
from tweetwire.runtime.flags import read_flags
from tweetwire.runtime.listening import port_taken
from tweetwire.runtime.login import FLAGS, Login
from tweetwire.runtime.logs import configure_logging
from tweetwire.runtime.metrics_port import serve_metrics_on
from tweetwire.runtime.signals import watch_signals
from tweetwire.runtime.tls import TlsFiles

__all__ = [
    "ClientSettings",
    "Name",
    "ProgramSettings",
    "logger",
    "port_taken",
    "ready",
    "run",
    "serve_metrics",
    "settings_config",
]

S = TypeVar("S", bound="ProgramSettings")
Serve = Callable[[S, anyio.Event], Awaitable[int | None]]

logger = structlog.stdlib.get_logger


def _name(text: str) -> str:
    try:
        return check_name(text)
    except Refusal as refusal:
        raise ValueError(refusal.text) from refusal


def _user(text: str | None) -> str | None:
    # Compose passes an unset variable as an empty text.
    return _name(text) if text else None


Name = Annotated[str, AfterValidator(_name)]
"""A name that the protocol allows. Any other text is refused before it is sent as part of a line."""


def settings_config(program: str) -> SettingsConfigDict:
    """Return the configuration of a program's flags and environment variables (``TWEETWIRE_<PROGRAM>_<SETTING>``)."""
    prefix = program.removeprefix("python -m ").replace(".", "_").replace(" ", "_").upper()
    return SettingsConfigDict(
        env_prefix=f"TWEETWIRE_{prefix}_",
        env_prefix_target="all",
        cli_prog_name=program,
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
        validate_default=True,
        extra="forbid",
        # If one setting is wrong, pydantic would show all values, including a token.
        hide_input_in_errors=True,
    )


class ProgramSettings(BaseSettings):
    """The settings of every program."""

    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="lowest level that is logged")
    log_json: bool | None = Field(
        None, description="log JSON lines instead of coloured text (default: unless stderr is a terminal)"
    )
    metrics_port: int = Field(0, ge=0, le=65535, description="port of Prometheus metrics, 0 for none")
    metrics_host: str = Field("127.0.0.1", description="address that metrics are served on")
    metrics_allowed_host: list[str] = Field(
        [], description="name by which Prometheus reaches the metrics, besides addresses and localhost"
    )


class ClientSettings(ProgramSettings):
    """The settings of every program that is a client of the broker."""

    broker: BrokerAddress = BROKER_ADDRESS
    broker_user: Annotated[str | None, AfterValidator(_user)] = Field(
        None, description="user of this program at the broker, if the broker has users"
    )
    broker_token: SecretStr | None = Field(
        None, description="token of that user; pass it as an environment variable, because others can see flags"
    )
    broker_tls: TlsSwitch = False
    broker_tls_ca: TlsAuthority = None
    broker_tls_cert: TlsCertificate = None
    broker_tls_key: TlsKey = None

    @model_validator(mode="after")
    def _can_log_in(self) -> Self:
        try:
            self.login().context()
        except TlsFileUnusable as error:
            raise ValueError(f"{FLAGS}tls-{error.setting}: {error.why}") from None
        return self

    def login(self) -> Login:
        """Return the address, user, token and TLS files as one `Login`. Raises ValueError."""
        token = None if self.broker_token is None else self.broker_token.get_secret_value()
        tls = TlsFiles.wanted(
            tls=self.broker_tls, ca=self.broker_tls_ca, cert=self.broker_tls_cert, key=self.broker_tls_key
        )
        try:
            return Login(self.broker, self.broker_user, token or None, tls)
        except ValueError as error:
            raise ValueError(f"--broker-user, --broker-token: {error}") from None

    def login_variables(self, program: SettingsConfigDict) -> dict[str, str]:
        """Return the environment variables for a child process that logs in like this program.

        They are not flags, because every user of the machine can read the flags of a process.
        """
        login, prefix = self.login(), f"{program.get('env_prefix', '')}BROKER_"
        tls = login.tls or TlsFiles()
        values = {
            "USER": login.user,
            "TOKEN": login.token,
            "TLS": "" if login.tls is None else "true",
            "TLS_CA": tls.ca,
            "TLS_CERT": tls.cert,
            "TLS_KEY": tls.key,
        }
        return {f"{prefix}{name}": str(value or "") for name, value in values.items()}


_FOR_A_PERSON = (StartError, BrokerUnreachable, TlsFailed, SubscriptionEnded, ProtocolError)
"""Errors that are printed as one sentence without a traceback."""


def run(settings_type: type[S], serve: Serve[S], argv: Sequence[str] | None = None, *, is_service: bool = True) -> int:
    """Read the settings and run `serve` until it returns, on uvloop if it is installed.

    Args:
        settings_type: The settings of the program.
        serve: Called with the settings and an anyio.Event that is set when the program must end. It returns the exit status,
            or None for 0.
        argv: The words of the command line; None for those of this process.
        is_service: Whether SIGHUP makes the program read its files again. Otherwise SIGHUP ends the program.

    Returns:
        The exit status.
    """
    prog = settings_type.model_config.get("cli_prog_name") or "tweetwire"
    try:
        settings = read_flags(settings_type, sys.argv[1:] if argv is None else argv)
        configure_logging(settings.log_level, is_json=settings.log_json)
        serve_metrics(settings)
        backend_options = {"use_uvloop": _has_uvloop()}
        return anyio.run(_serve_until_signal, settings, serve, is_service, backend_options=backend_options) or 0
    except _FOR_A_PERSON as error:
        return _refuse(prog, _told(error))
    except KeyboardInterrupt:
        return 130
    except BaseExceptionGroup as group:
        reason = _only_start_errors(group)
        if reason is None:
            raise
        return _refuse(prog, reason)


def serve_metrics(settings: ProgramSettings) -> None:
    """Serve Prometheus metrics from threads, unless the port is 0. Raises StartError if the port cannot be used."""
    host, port = settings.metrics_host, settings.metrics_port
    if port:
        try:
            serve_metrics_on(host, port, [host, *settings.metrics_allowed_host])
        except OSError as error:
            raise port_taken(error, host, port, "--metrics-port") from error


def ready(program: str, address: str) -> None:
    """Log the line that says the program serves; `ReadyLine` searches for it."""
    logger().info(f"{program} ready on {address}")


async def _serve_until_signal(settings: S, serve: Serve[S], is_service: bool) -> int | None:
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        await tasks.start(watch_signals, stop, is_service)
        status = await serve(settings, stop)
        tasks.cancel_scope.cancel()
    return status


def _has_uvloop() -> bool:
    with suppress(ImportError):
        import uvloop  # noqa: F401, PLC0415 — only where the platform has it

        return True
    return False


def _refuse(prog: str, sentence: str) -> int:
    print(f"{prog}: {sentence}", file=sys.stderr, flush=True)
    return 2


def _only_start_errors(group: BaseExceptionGroup[BaseException]) -> str | None:
    """Return the text of the first error if all errors in the group are `_FOR_A_PERSON`, else None."""
    wanted, other = group.split(_FOR_A_PERSON)
    if other is not None or wanted is None:
        return None
    error: BaseException = wanted
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return _told(error)


def _told(error: BaseException) -> str:
    return error.with_remedy(FLAGS) if isinstance(error, TlsFailed) else str(error)
