"""The dashboard as a server: its pages, its guard, and a shutdown that does not wait for visitors."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import anyio
import uvicorn
from fastapi import FastAPI, Form, Request
from fastapi.responses import RedirectResponse, Response
from nicegui import app as pages_app
from nicegui import ui

from dashboard.guard import Guard
from dashboard.pages import register
from dashboard.sessions import COOKIE, SESSION_S, Sessions, SignInRefused
from dashboard.settings import DashboardSettings
from tweetwire.runtime.program import logger, ready

__all__ = ["application", "serve"]

STATIC: Final = Path(__file__).with_name("static")
LEAVE_S: Final = 2
NICENESS: Final = 5
"""On a machine with few cores, the broker must not wait while pages are drawn, so this process has a lower priority."""


async def serve(settings: DashboardSettings, listener: socket.socket, stop: anyio.Event) -> None:
    """Serve the visitors of `listener` until `stop`. Raises StartError if a TLS file is unusable."""
    with suppress(OSError):
        os.nice(NICENESS)
    logging.basicConfig(handlers=[_Relay()], level=logging.WARNING)
    async with anyio.create_task_group() as tasks:
        server = _Server(_configured(application(settings, Sessions(settings, tasks))))
        tasks.start_soon(_end_when, stop, server)
        tasks.start_soon(_say_ready, server, settings, listener)
        await server.serve([listener])
        tasks.cancel_scope.cancel()


def application(settings: DashboardSettings, sessions: Sessions) -> FastAPI:
    """Return the whole application: signing in and out, the pages, and the guard before them."""
    main = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    @main.post("/sign-in")
    async def sign_in(request: Request, user: str = Form(""), token: str = Form(""), then: str = Form("/")) -> Response:
        try:
            word = await sessions.sign_in(user, token, "" if request.client is None else request.client.host)
        except SignInRefused as refusal:
            return RedirectResponse(f"/sign-in?refused={refusal.why}", 303)
        answer = RedirectResponse(_own_path(then), 303)
        is_secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, word, max_age=SESSION_S, httponly=True, samesite="strict", secure=is_secure)
        return answer

    @main.post("/sign-out")
    async def sign_out(request: Request) -> Response:
        sessions.sign_out(request.cookies)
        answer = RedirectResponse("/sign-in", 303)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    pages_app.add_static_files("/static", STATIC)
    register(sessions)
    ui.run_with(main, title="tweetwire", dark=None, tailwind=False, show_welcome_message=False, reconnect_timeout=10.0)
    names = frozenset({"localhost", settings.host.lower(), *(name.lower() for name in settings.allowed_host)})
    main.add_middleware(Guard, names=names)
    return main


class _Relay(logging.Handler):
    """Passes messages of libraries, which use Python's logging, to this program's log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log one message."""
        logger().log(record.levelno, record.getMessage(), source=record.name, exc_info=record.exc_info)


class _Server(uvicorn.Server):
    """A server that leaves signals to the program."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield


def _configured(app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=LEAVE_S,
        ws="websockets-sansio",
    )


async def _end_when(stop: anyio.Event, server: uvicorn.Server) -> None:
    await stop.wait()
    server.should_exit = True


async def _say_ready(server: uvicorn.Server, settings: DashboardSettings, listener: socket.socket) -> None:
    while not server.started:
        await anyio.sleep(0.01)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    if not _is_loopback(settings.host):
        logger().warning("dashboard is reachable from other machines; give the broker --users to require a sign-in")
    ready("dashboard", f"http://{host}:{listener.getsockname()[1]}")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _own_path(text: str) -> str:
    """Return a path of this dashboard to redirect to; "/" for any text that could lead elsewhere."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() else "/"
