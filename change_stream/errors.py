"""What MongoDB's failures mean for a change stream; pymongo's errors are told apart here and nowhere else."""

import re

from pymongo.errors import (
    ConfigurationError,
    CursorNotFound,
    InvalidName,
    InvalidURI,
    OperationFailure,
    PyMongoError,
)

from broker.errors import StartError

__all__ = ["HistoryLost", "OversizeChange", "WatchInterrupted", "WatchRefused", "translate"]

# What the server answers where the oplog no longer reaches back to a token, or never knew it.
_HISTORY_LOST = frozenset({136, 260, 280, 286})
_TOO_LARGE = frozenset({10334, 17280, 17419})
# Faults of the request: it will fail in the same way for ever.
_REFUSED = frozenset({2, 9, 14, 59, 72, 73, 115, 303, 9998, 40324, 40573, 40602, 51247, 303306, 6189503})
_APPENDED = re.compile(r", Timeout:| \(configured timeouts")
_NEVER = (ConfigurationError, InvalidURI, InvalidName)


class WatchInterrupted(Exception):
    """MongoDB is away, changes its primary, or refuses for a reason that may pass; the same request may go well later."""


class HistoryLost(Exception):
    """The oplog does not reach back to the position that was asked for, or does not know it."""


class OversizeChange(Exception):
    """The next change is larger than MongoDB can send (16 MiB)."""


class WatchRefused(StartError):
    """MongoDB will never accept this request; the text says what to change."""


def translate(error: PyMongoError) -> Exception:
    """Return the error of ours that says what `error` means."""
    code = getattr(error, "code", None)
    reason = _reason(error)
    if isinstance(error, _NEVER):
        return WatchRefused(f"the MongoDB settings cannot be used: {reason}")
    if isinstance(error, OperationFailure) and not isinstance(error, CursorNotFound):
        if code == 40573:
            return WatchRefused("change streams need a replica set; start mongod with --replSet, or run: make demo")
        if code in _HISTORY_LOST or error.has_error_label("NonResumableChangeStreamError"):
            return HistoryLost(reason)
        if code in _TOO_LARGE:
            return OversizeChange(reason)
        if code in _REFUSED and not error.has_error_label("ResumableChangeStreamError"):
            return WatchRefused(f"MongoDB refuses the change stream: {reason}")
    return WatchInterrupted(reason)


def _reason(error: PyMongoError) -> str:
    if isinstance(error, OperationFailure) and error.details:
        return str(error.details.get("errmsg", error))
    # pymongo appends its timeouts and the state of every server; the first clause is what a person needs.
    return _APPENDED.split(str(error), maxsplit=1)[0]
