"""The logs of the clients: events with fields, through the standard library's `logging`.

A program that configures `logging` sees the clients' warnings like its own. Our programs log them in the form of their
own events.
"""

import logging
from typing import Any

from tweetwire.protocol.errors import TlsFailed

__all__ = ["EventLogger", "OutageLog", "client_logger"]


class EventLogger:
    """Logs an event with fields. The text has both; the record has them apart in its attributes `event` and `fields`."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def info(self, event: str, **fields: Any) -> None:
        """Log an event of normal operation."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log a problem that may pass without help."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log a problem that a person has to solve."""
        self._log(logging.ERROR, event, fields)

    def _log(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            text = " ".join(f"{name}={value!r}" for name, value in fields.items())
            self._logger.log(level, "%s %s" if text else "%s%s", event, text, extra={"event": event, "fields": fields})


class OutageLog:
    """Logs why a client has no connection. An outage may take hours, so each reason is logged once in a row."""

    def __init__(self, logger: EventLogger, client: str) -> None:
        self._logger = logger
        self._client = client
        self._reason = ""

    def note_failed(self, error: BaseException) -> None:
        """Log the reason of a failed attempt to connect, unless it is that of the attempt before."""
        if (reason := str(error) or "timeout") != self._reason:
            self._reason = reason
            # A TLS error needs a person's help, while the other reasons may pass.
            log = self._logger.error if isinstance(error, TlsFailed) else self._logger.warning
            log("cannot reach the broker", client=self._client, reason=reason)

    def note_connected(self) -> None:
        """End the outage: the next one logs its reasons again."""
        self._reason = ""


def client_logger(name: str) -> EventLogger:
    """Return the logger of the module `name`."""
    return EventLogger(logging.getLogger(name))
