"""What MongoDB's failures mean for a change stream; pymongo's errors are told apart here and nowhere else."""

from pymongo.errors import (
    ConfigurationError,
    CursorNotFound,
    InvalidName,
    InvalidURI,
    OperationFailure,
    PyMongoError,
)

from broker.errors import StartError
from broker.mongodb import reason_of

__all__ = ["HistoryLost", "OversizeChange", "WatchInterrupted", "WatchRefused", "translate"]

# What the server answers where the oplog no longer reaches back to a token, or never knew it.
_HISTORY_LOST = frozenset({136, 260, 280, 286})
_TOO_LARGE = frozenset({10334, 17280, 17419})
_REQUEST = "MongoDB refuses the change stream: {reason}"
# Faults of the request, which fails in the same way for ever.
_REFUSED = {
    **dict.fromkeys((2, 9, 14, 72, 73, 115, 166, 40324), _REQUEST),
    47: "{reason}; turn on the collection's pre- and post-images, or give when_available instead of required",
    40573: "change streams need a replica set; start mongod with --replSet, or run: make demo",
}
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
    reason = _reason(error)
    if isinstance(error, _NEVER):
        return WatchRefused(f"the MongoDB settings cannot be used: {reason}")
    if isinstance(error, OperationFailure) and not isinstance(error, CursorNotFound):
        return _of_server(error, reason)
    return WatchInterrupted(reason)


def _of_server(error: OperationFailure, reason: str) -> Exception:
    code = error.code
    if code in _REFUSED and not error.has_error_label("ResumableChangeStreamError"):
        return WatchRefused(_REFUSED[code].format(reason=reason))
    if code in _TOO_LARGE:
        return OversizeChange(reason)
    if code in _HISTORY_LOST or error.has_error_label("NonResumableChangeStreamError"):
        return HistoryLost(reason)
    return WatchInterrupted(reason)


def _reason(error: PyMongoError) -> str:
    if isinstance(error, OperationFailure) and error.details:
        return str(error.details.get("errmsg", error))
    return reason_of(error)
