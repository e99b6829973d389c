"""Structured logs of a program and of the clients in it: events with fields."""

import logging
import sys
from typing import Any

import structlog

__all__ = ["configure_logging"]


def configure_logging(level: str, *, is_json: bool | None) -> None:
    """Log events of at least `level` on stderr, as JSON lines or as text.

    If `is_json` is None, the log is text on a terminal and JSON lines otherwise. Text is coloured on a terminal.
    """
    is_terminal = sys.stderr.isatty()
    is_json = not is_terminal if is_json is None else is_json
    # A local variable may hold a token, so tracebacks do not show them.
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
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    clients = logging.getLogger("tweetwire.client")
    clients.handlers = [_ToStructlog()]
    clients.setLevel(level.upper())
    clients.propagate = False


class _ToStructlog(logging.Handler):
    """Passes the clients' log records to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.stdlib.get_logger().log(record.levelno, record.__dict__["event"], **record.__dict__["fields"])
