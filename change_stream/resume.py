"""Where a publisher stands in MongoDB's history, as text that the broker keeps with each event.

A record has five parts, six while a snapshot runs:
``v1/<cluster>/<scope>/<seconds>.<increment>/<token>[/<copied>]``.

- cluster: the id of the replica set; a token means nothing to another one.
- scope: a digest of what is watched and how; a token of another pipeline need not lie on this one's way.
- seconds.increment: the cluster time. Every change up to it is published if there is no token (``-``), else every change up
  to the token.
- token: MongoDB's resume token, with its type bits behind a ``~`` where it has some.
- copied: while a snapshot runs, BSON of the last ``_id`` that was copied, in URL-safe base64; ``-`` before the first.
"""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import bson
from bson import Timestamp
from msgspec import Struct

from change_stream.extended_json import RAW_CODEC

__all__ = ["Position", "ResumeRecord", "Stamp", "copied_identity", "copied_through", "scope_of", "token_time"]

_VERSION = "v1"
_NONE = "-"
_INCREMENT_MAX = 2**32 - 1


class Position(Struct, frozen=True):
    """A place in the oplog: behind `token`, or behind everything of cluster time `time` where there is no token."""

    time: Timestamp
    token: dict[str, Any] | None = None

    @classmethod
    def behind(cls, token: dict[str, Any]) -> "Position":
        """The position behind a resume token."""
        return cls(token_time(token), token)

    def start_options(self) -> dict[str, Any]:
        """What `$changeStream` needs to begin here.

        `startAfter` takes every token, also that of an invalidate event, which `resumeAfter` refuses.
        """
        if self.token is not None:
            return {"startAfter": self.token}
        time = self.time
        following = Timestamp(time.time, time.inc + 1) if time.inc < _INCREMENT_MAX else Timestamp(time.time + 1, 0)
        return {"startAtOperationTime": following}

    def rewound(self) -> "Position":
        """The position just before this one's cluster time, so that everything of that time comes again."""
        if self.time.inc:
            return Position(Timestamp(self.time.time, self.time.inc - 1))
        return Position(Timestamp(self.time.time - 1, _INCREMENT_MAX))

    @property
    def at_ms(self) -> int:
        """The cluster time in milliseconds since 1970 UTC; MongoDB counts whole seconds."""
        return self.time.time * 1000


class ResumeRecord(Struct, frozen=True):
    """A position, what it is a position of, and how far a snapshot has come.

    `copied` is None when no snapshot runs, b"" before its first document, else BSON of ``{"_id": <last one copied>}``.
    """

    cluster: str
    scope: str
    position: Position
    copied: bytes | None = None

    def text(self) -> str:
        """Write the record as `parse` reads it."""
        return Stamp(self.cluster, self.scope, self.copied)(self.position.time, self.position.token)

    @classmethod
    def parse(cls, text: str) -> "ResumeRecord":
        """Read a record. Raises ValueError where it is none."""
        version, cluster, scope, time, token, *rest = text.split("/")
        if version != _VERSION or len(rest) > 1:
            raise ValueError(f"no resume record of version {_VERSION}: {text!r}")
        seconds, increment = time.split(".")
        position = Position(Timestamp(int(seconds), int(increment)), _parse_token(token))
        return cls(cluster, scope, position, _parse_copied(rest[0]) if rest else None)


class Stamp:
    """Writes the records of a running stream: what never changes is written once."""

    def __init__(self, cluster: str, scope: str, copied: bytes | None = None) -> None:
        self._head = f"{_VERSION}/{cluster}/{scope}/"
        self._tail = "" if copied is None else "/" + _copied(copied)

    def __call__(self, time: Timestamp, token: dict[str, Any] | None) -> str:
        """Return the text of the record behind `token`, or behind all of `time`."""
        return f"{self._head}{time.time}.{time.inc}/{_token(token)}{self._tail}"


def scope_of(database: str, collection: str, pipeline: list[dict[str, Any]], options: dict[str, Any]) -> str:
    """Digest what is watched and how, in 12 hexadecimal digits."""
    canonical = bson.encode({"db": database, "coll": collection, "pipeline": pipeline, "options": options})
    return hashlib.sha256(canonical).hexdigest()[:12]


def copied_through(document: Mapping[str, Any]) -> bytes:
    """Return what `ResumeRecord.copied` is when `document` is the last one copied."""
    return bson.encode({"_id": document["_id"]})


def copied_identity(copied: bytes) -> Any:
    """Return the `_id` in `ResumeRecord.copied`, of any BSON type, as MongoDB takes it back."""
    return bson.decode(copied, RAW_CODEC)["_id"]


def token_time(token: Mapping[str, Any]) -> Timestamp:
    """Read the cluster time that a resume token begins with.

    ``_data`` is a KeyString in hexadecimal: the type byte 0x82 of a timestamp, its seconds, its increment, then the rest.
    """
    data = token["_data"]
    if not data.startswith("82"):
        raise ValueError(f"a resume token of unknown form: {data[:18]}")
    return Timestamp(int(data[2:10], 16), int(data[10:18], 16))


def _token(token: dict[str, Any] | None) -> str:
    if token is None:
        return _NONE
    bits = token.get("_typeBits")
    return token["_data"] if bits is None else f"{token['_data']}~{base64.urlsafe_b64encode(bits).decode()}"


def _parse_token(text: str) -> dict[str, Any] | None:
    if text == _NONE:
        return None
    data, _, bits = text.partition("~")
    return {"_data": data, "_typeBits": base64.urlsafe_b64decode(bits)} if bits else {"_data": data}


def _copied(copied: bytes) -> str:
    return base64.urlsafe_b64encode(copied).decode() or _NONE


def _parse_copied(text: str) -> bytes:
    return b"" if text == _NONE else base64.urlsafe_b64decode(text)
