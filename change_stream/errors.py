"""Translate pymongo's errors into this package's errors. No other module inspects them."""

from collections.abc import Callable

from pymongo.errors import (
    ConfigurationError,
    CursorNotFound,
    InvalidName,
    InvalidURI,
    OperationFailure,
    PyMongoError,
)

from tweetwire.protocol.errors import StartError
from tweetwire.runtime.mongodb import reason_of

__all__ = [
    "ChangeUnreadable",
    "CollectionReplaced",
    "HistoryLost",
    "OversizeChange",
    "RefusedForNow",
    "WatchInterrupted",
    "WatchRefused",
    "translate",
    "translate_read",
]

_NO_REPLICA_SET = "change streams need a replica set; start mongod with --replSet, or run: make demo"
_NO_IMAGES = "{reason}; turn on the collection's pre- and post-images, or give when_available instead of required"
_SNAPSHOT_UNAVAILABLE = 246
_LOCATION = "Location"
"""The prefix of MongoDB's generated names (``Location40324``) for failed checks that have no proper name."""

_NEVER = (ConfigurationError, InvalidURI, InvalidName)


class WatchInterrupted(Exception):
    """MongoDB is unreachable, elects a primary, or refuses for a temporary reason; the same request may succeed later."""


class RefusedForNow(WatchInterrupted):
    """MongoDB answers, but refuses for a reason that may be temporary, such as a missing privilege."""


class HistoryLost(Exception):
    """The oplog no longer contains the requested position, or never did."""


class OversizeChange(Exception):
    """The next change is larger than 16 MiB, the most that MongoDB can send."""


class ChangeUnreadable(Exception):
    """The user's stages failed, probably for one change."""


class CollectionReplaced(HistoryLost):
    """Another collection, previously called `old`, was renamed to the watched name; its documents have no change events."""

    def __init__(self, collection: str, old: str | None = None) -> None:
        other = "another collection" if old is None else f"the collection {old}"
        super().__init__(f"{other} was renamed to {collection}, so the topic does not have its documents")


class WatchRefused(StartError):
    """MongoDB will never accept this request; the text says what to change."""


def _refused(sentence: str = "MongoDB refuses the change stream: {reason}") -> Callable[[str], Exception]:
    return lambda reason: WatchRefused(sentence.format(reason=reason))


_NO_IMAGE = 47
_MEANINGS: dict[int, Callable[[str], Exception]] = {
    # Permanent: the same request fails until a person changes the request, the collection or the server.
    2: _refused(),  # BadValue
    9: _refused(),  # FailedToParse
    14: _refused(),  # TypeMismatch
    20: _refused(),  # IllegalOperation
    _NO_IMAGE: _refused(_NO_IMAGES),  # NoMatchingDocument
    59: _refused(),  # CommandNotFound
    72: _refused(),  # InvalidOptions
    73: _refused(),  # InvalidNamespace
    115: _refused(),  # CommandNotSupported
    166: _refused(),  # CommandNotSupportedOnView
    168: _refused(),  # InvalidPipelineOperator
    238: _refused(),  # NotImplemented
    292: _refused(),  # QueryExceededMemoryLimitNoDiskUseAllowed
    323: _refused(),  # APIStrictError
    40324: _refused(),  # an unknown stage
    40573: _refused(_NO_REPLICA_SET),
    # The oplog no longer contains the token's position, or never did.
    136: HistoryLost,  # CappedPositionLost
    260: HistoryLost,  # InvalidResumeToken
    280: HistoryLost,  # ChangeStreamFatalError
    286: HistoryLost,  # ChangeStreamHistoryLost
    # One change is too large for a reply.
    10334: OversizeChange,  # BSONObjectTooLarge
    17280: OversizeChange,  # KeyTooLong
    17419: OversizeChange,
    # Temporary: outages, and refusals whose cause a person can remove while the publisher waits.
    11: RefusedForNow,  # UserNotFound
    13: RefusedForNow,  # Unauthorized
    18: RefusedForNow,  # AuthenticationFailed
    43: WatchInterrupted,  # CursorNotFound
    50: RefusedForNow,  # MaxTimeMSExpired
    _SNAPSHOT_UNAVAILABLE: RefusedForNow,
    9001: WatchInterrupted,  # SocketException
    10107: WatchInterrupted,  # NotWritablePrimary
    11600: WatchInterrupted,  # InterruptedAtShutdown
    11601: WatchInterrupted,  # Interrupted
    11602: WatchInterrupted,  # InterruptedDueToReplStateChange
    13388: WatchInterrupted,  # StaleConfig
    13435: WatchInterrupted,  # NotPrimaryNoSecondaryOk
    13436: WatchInterrupted,  # NotPrimaryOrSecondary
}
"""The error for each of MongoDB's codes. An unknown code is temporary, except for a failed check without a name."""


def translate(error: PyMongoError) -> Exception:
    """Return this package's error for an error of pymongo."""
    reason = _reason(error)
    if isinstance(error, _NEVER):
        return WatchRefused(f"the MongoDB settings cannot be used: {reason}")
    if isinstance(error, OperationFailure) and not isinstance(error, CursorNotFound):
        return _of_server(error, reason)
    return WatchInterrupted(reason)


def translate_read(error: PyMongoError) -> Exception:
    """Return this package's error for an error of reading a batch, at which MongoDB runs the user's stages.

    A code that neither passes with time nor means that history is lost is an error of these stages.
    """
    failure = translate(error)
    if not isinstance(error, OperationFailure) or not isinstance(failure, WatchRefused | RefusedForNow):
        return failure
    is_known = _MEANINGS.get(error.code or 0) is RefusedForNow or error.code == _NO_IMAGE
    return failure if is_known else ChangeUnreadable(f"code {error.code}: {_reason(error)}")


def _of_server(error: OperationFailure, reason: str) -> Exception:
    if error.has_error_label("ResumableChangeStreamError"):
        return WatchInterrupted(reason)
    if error.code == _SNAPSHOT_UNAVAILABLE and "capped" in reason:
        return _refused("MongoDB cannot copy the collection: {reason}; give --snapshot never")(reason)
    meaning = _MEANINGS.get(error.code or 0)
    if meaning is not None:
        return meaning(reason)
    if error.has_error_label("NonResumableChangeStreamError"):
        return HistoryLost(reason)
    is_failed_check = str((error.details or {}).get("codeName", "")).startswith(_LOCATION)
    return _refused()(reason) if is_failed_check else RefusedForNow(reason)


def _reason(error: PyMongoError) -> str:
    if isinstance(error, OperationFailure) and error.details:
        return str(error.details.get("errmsg", error))
    return reason_of(error)
