"""What every program of the stack has in common: settings, logs, metrics, signals, and how it ends.

A program is a settings class and an async function that serves until `stop` is set. `run` reads the settings from
flags and environment, and turns what happens into an exit status: 0 after an orderly end, 2 with one sentence for a
wrong setting, a taken port or a missing server, 130 after a second signal. A bug keeps its traceback and gives 1.
"""

import errno
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, Self, TypeVar

import anyio
import prometheus_client
import structlog
from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from broker.errors import BrokerUnreachable, Refusal, StartError, TlsFailed, TlsFileUnusable
from broker.flags import read_flags
from broker.kinds import Address, OptionalFile, Switch
from broker.login import FLAGS, Login
from broker.protocol import check_name
from broker.tls import TlsFiles

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
    # An empty variable is how Compose writes one that is not set.
    return _name(text) if text else None


Name = Annotated[str, AfterValidator(_name)]
"""A name as the protocol allows it, refused before it becomes part of a line."""


def settings_config(program: str) -> SettingsConfigDict:
    """Name a program's flags and its environment variables (``TWEETWIRE_<PROGRAM>_<SETTING>``)."""
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
        # Where some are wrong, all that were given would be shown, a token among them.
        hide_input_in_errors=True,
    )


class ProgramSettings(BaseSettings):
    """The settings that every program has."""

    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level that is logged")
    log_json: bool | None = Field(
        None, description="log JSON lines instead of coloured text (default: unless stderr is a terminal)"
    )
    metrics_port: int = Field(0, ge=0, le=65535, description="port of Prometheus metrics, 0 for none")
    metrics_host: str = Field("127.0.0.1", description="address that metrics are served on")


class ClientSettings(ProgramSettings):
    """The settings that every program has which is a client of the broker."""

    broker: Address = Field("127.0.0.1:8000", description="address of the broker")
    broker_user: Annotated[str | None, AfterValidator(_user)] = Field(
        None, description="user that this program is there, if the broker has users"
    )
    broker_token: SecretStr | None = Field(
        None, description="token of that user; better as an environment variable than as a flag, which others see"
    )
    broker_tls: Switch = Field(False, description="speak TLS with the broker; implied by the files below")
    broker_tls_ca: OptionalFile = Field(
        None, description="PEM file of the authority that the broker's certificate is from (default: the system's)"
    )
    broker_tls_cert: OptionalFile = Field(
        None, description="PEM file with this program's certificate, if the broker wants one"
    )
    broker_tls_key: OptionalFile = Field(
        None, description="PEM file with that certificate's key (default: in the certificate's file)"
    )

    @model_validator(mode="after")
    def _can_log_in(self) -> Self:
        try:
            self.login().context()
        except TlsFileUnusable as error:
            raise ValueError(f"{FLAGS}tls-{error.setting}: {error.why}") from None
        return self

    def login(self) -> Login:
        """Give them all as one. Raises ValueError."""
        token = None if self.broker_token is None else self.broker_token.get_secret_value()
        tls = TlsFiles.wanted(
            tls=self.broker_tls, ca=self.broker_tls_ca, cert=self.broker_tls_cert, key=self.broker_tls_key
        )
        try:
            return Login(self.broker, self.broker_user, token or None, tls)
        except ValueError as error:
            raise ValueError(f"--broker-user, --broker-token: {error}") from None

    def login_variables(self, program: SettingsConfigDict) -> dict[str, str]:
        """Give the environment variables by which another program of this one's logs in as this one does.

        Not as flags, which everybody on the machine may read.
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


def run(settings_type: type[S], serve: Serve[S], argv: Sequence[str] | None = None) -> int:
    """Read the settings and run `serve` on uvloop until it returns. Returns the exit status."""
    prog = settings_type.model_config.get("cli_prog_name") or "tweetwire"
    try:
        settings = read_flags(settings_type, sys.argv[1:] if argv is None else argv)
        configure_logging(settings)
        serve_metrics(settings.metrics_host, settings.metrics_port)
        return anyio.run(_serve_until_signal, settings, serve, backend_options={"use_uvloop": _has_uvloop()}) or 0
    except (StartError, BrokerUnreachable, TlsFailed) as error:
        return _refuse(prog, _told(error))
    except KeyboardInterrupt:
        return 130
    except BaseExceptionGroup as group:
        reason = _only_start_errors(group)
        if reason is None:
            raise
        return _refuse(prog, reason)


def configure_logging(settings: ProgramSettings) -> None:
    """Structured logs on stderr: JSON lines for programs, coloured text for people."""
    is_terminal = sys.stderr.isatty()
    is_json = not is_terminal if settings.log_json is None else settings.log_json
    # What a function has at hand may be a token.
    tracebacks = structlog.dev.RichTracebackFormatter(show_locals=False)
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if is_json
        else structlog.dev.ConsoleRenderer(colors=is_terminal, exception_formatter=tracebacks)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([structlog.processors.format_exc_info] if is_json else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, settings.log_level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def serve_metrics(host: str, port: int) -> None:
    """Serve Prometheus metrics from a thread of their own; port 0 serves none."""
    if port:
        try:
            prometheus_client.start_http_server(port, addr=host)
        except OSError as error:
            raise port_taken(error, host, port, "--metrics-port") from error


def port_taken(error: OSError, host: str, port: int, flag: str) -> StartError:
    """Say in one sentence why `host`:`port` cannot be listened on."""
    if error.errno == errno.EADDRINUSE:
        return StartError(f"port {port} on {host} is in use; stop the program that has it or choose another: {flag}")
    return StartError(f"cannot listen on {host}:{port}: {error.strerror or error}")


def ready(program: str, address: str) -> None:
    """Log the one line that says the program serves."""
    logger().info(f"{program} ready on {address}")


async def _serve_until_signal(settings: S, serve: Serve[S]) -> int | None:
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_watch_signals, stop)
        status = await serve(settings, stop)
        tasks.cancel_scope.cancel()
    return status


async def _watch_signals(stop: anyio.Event) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            if stop.is_set():
                os._exit(130)
            stop.set()


def _has_uvloop() -> bool:
    with suppress(ImportError):
        import uvloop  # noqa: F401, PLC0415 — only where the platform has it

        return True
    return False


def _refuse(prog: str, sentence: str) -> int:
    print(f"{prog}: {sentence}", file=sys.stderr, flush=True)
    return 2


def _only_start_errors(group: BaseExceptionGroup[BaseException]) -> str | None:
    """Return the first sentence where everything in the group is one for a person, else None."""
    wanted, other = group.split((StartError, BrokerUnreachable, TlsFailed))
    if other is not None or wanted is None:
        return None
    error: BaseException = wanted
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return _told(error)


def _told(error: BaseException) -> str:
    return error.with_remedy(FLAGS) if isinstance(error, TlsFailed) else str(error)
