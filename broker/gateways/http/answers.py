"""The answers of the gateway, and the one table that maps the codes of refusals to HTTP statuses."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from tweetwire.protocol.errors import RETRYABLE, Refusal

__all__ = ["STATUSES", "Answer", "HttpError", "error_of", "json_answer", "lines_answer", "status_of"]

JSON: Final = "application/json"
JSON_LINES: Final = "application/x-ndjson"
RETRY_AFTER_S: Final = 1

STATUSES: Final[Mapping[str, int]] = {
    "unknown_command": 400,
    "bad_arguments": 400,
    "bad_name": 400,
    "bad_json": 400,
    "bad_event": 400,
    "bad_utf8": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "unknown_topic": 404,
    "not_subscribed": 404,
    "no_event": 404,
    "stale": 409,
    "out_of_sequence": 409,
    "fenced": 409,
    "too_long": 413,
    "schema": 422,
    "too_many": 429,
    "internal": 500,
    "busy": 503,
    "shutting_down": 503,
    "disk": 507,
}
"""The HTTP status for each code of a refusal."""


class Answer(NamedTuple):
    """A whole answer to one request."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class HttpError(Exception):
    """A request that the gateway itself refuses, for a reason that the line protocol does not have."""

    def __init__(self, status: int, code: str, text: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.text = text
        self.headers = headers


def status_of(refusal: Refusal) -> int:
    """Return the HTTP status of a refusal. An unknown code is a bug of the gateway."""
    return STATUSES.get(refusal.code, 500)


def error_of(error: Refusal | HttpError) -> Answer:
    """Return the answer to a request that was refused."""
    body = msgspec.json.encode({"error": {"code": error.code, "message": error.text}}) + b"\n"
    if isinstance(error, HttpError):
        return Answer(error.status, body, headers=error.headers)
    headers: tuple[tuple[str, str], ...] = ()
    if error.code in RETRYABLE:
        headers = (("retry-after", str(RETRY_AFTER_S)),)
    elif error.code == "unauthenticated":
        # No connection may guess tokens without end.
        headers = (("www-authenticate", 'Basic realm="tweetwire"'), ("connection", "close"))
    return Answer(status_of(error), body, headers=headers)


def json_answer(value: Any, status: int = 200) -> Answer:
    """Return an answer with a JSON value."""
    return Answer(status, msgspec.json.encode(value) + b"\n")


def lines_answer(body: bytes, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """Return an answer with JSON Lines."""
    return Answer(status, body, JSON_LINES, headers)
