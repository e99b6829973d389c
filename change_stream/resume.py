"""The position of a publisher in MongoDB's history, as text that the broker stores with each event.

A record has five parts, and three more while a snapshot runs. It ends in ``lost`` while a decision about lost history is
pending:
``v1/<cluster>/<scope>/<seconds>.<increment>/<token>[//lost]`` or
``v2/<cluster>/<scope>/<seconds>.<increment>/<token>/<copied>/<copy>/<documents>[/lost]``.

- cluster: the id of the replica set; a token is valid in its own cluster only.
- scope: a digest of the watched collection, the pipeline and the options. The stream of one pipeline may lack the tokens of
  another.
- seconds.increment: the cluster time. All changes up to the token are published; without a token (``-``), all changes up to
  this time.
- token: MongoDB's resume token, followed by ``~`` and its type bits if it has any.
- copied: the last ``_id`` that the running snapshot copied, as BSON in URL-safe base64; ``-`` before the first document. Older
  versions of this program wrote only this part, after ``v1``.
- copy: the sequence of the event that began the snapshot, which identifies it; 0 before that event.
- documents: how many documents the snapshot has copied.
- lost: another collection was renamed to the watched name at this position, and the topic lacks its documents.
"""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import bson
from bson import Timestamp
from bson.raw_bson import RawBSONDocument
from msgspec import Struct

from change_stream.elements import element_of, literal_of

__all__ = [
    "CopyProgress",
    "ResumeRecord",
    "Stamp",
    "StreamPosition",
    "copied_identity",
    "copied_through",
    "scope_of",
    "token_time",
]

_VERSION = "v1"
_COPYING = "v2"
_NONE = "-"
_LOST = "lost"
_INCREMENT_MAX = 2**32 - 1


class StreamPosition(Struct, frozen=True):
    """A place in the oplog: after `token`, or if there is no token, after all changes of cluster time `time`."""

    time: Timestamp
    token: dict[str, Any] | None = None

    @classmethod
    def behind(cls, token: dict[str, Any]) -> "StreamPosition":
        """Return the position after a resume token."""
        return cls(token_time(token), token)

    def start_options(self) -> dict[str, Any]:
        """Return the members of `$changeStream` that start a stream at this position.

        `startAfter` accepts every token; `resumeAfter` refuses the token of an invalidate event.
        """
        if self.token is not None:
            return {"startAfter": self.token}
        time = self.time
        following = Timestamp(time.time, time.inc + 1) if time.inc < _INCREMENT_MAX else Timestamp(time.time + 1, 0)
        return {"startAtOperationTime": following}

    def rewound(self) -> "StreamPosition":
        """Return the position before all changes of this cluster time, so that a stream repeats them."""
        if self.time.inc:
            return StreamPosition(Timestamp(self.time.time, self.time.inc - 1))
        return StreamPosition(Timestamp(self.time.time - 1, _INCREMENT_MAX))

    def is_at_or_behind(self, other: "StreamPosition") -> bool:
        """Whether all changes up to `other`, which has a token, are before this position or at it."""
        if self.token is None or other.token is None:
            return self.time >= other.time
        # Tokens of one cluster sort as text, by time first.
        return bool(self.token["_data"] >= other.token["_data"])

    @property
    def at_ms(self) -> int:
        """The cluster time in milliseconds since 1970 UTC; MongoDB counts whole seconds."""
        return self.time.time * 1000


class CopyProgress(Struct, frozen=True):
    """How far a snapshot is.

    `through` is b"" before its first document, and then the BSON of ``{"_id": <last copied>}``. `id` is the sequence of the
    snapshot's first event, 0 before it is published. `documents` is the number of copied documents.
    """

    through: bytes = b""
    id: int = 0
    documents: int = 0

    @property
    def is_due(self) -> bool:
        """Whether the snapshot has not begun yet."""
        return not self.through and self.id == 0

    def behind(self, document: RawBSONDocument) -> "CopyProgress":
        """Return the progress after one more document."""
        return CopyProgress(copied_through(document), self.id, self.documents + 1)


class ResumeRecord(Struct, frozen=True):
    """A position, the cluster and scope it belongs to, and the progress of a snapshot, None if no snapshot runs."""

    cluster: str
    scope: str
    position: StreamPosition
    copy: CopyProgress | None = None
    is_lost: bool = False
    """Whether history is lost at `position` and the policy for lost history has not been applied yet."""

    def text(self) -> str:
        """Return the text that `parse` reads."""
        stamp = Stamp(self.cluster, self.scope, self.copy)
        return (stamp.lost if self.is_lost else stamp)(self.position.time, self.position.token)

    @classmethod
    def parse(cls, text: str) -> "ResumeRecord":
        """Parse a record. Raises ValueError if `text` is not a resume record."""
        version, cluster, scope, time, token, *rest = text.split("/")
        is_lost = rest[1:] != [] and rest[-1] == _LOST
        copy = _parse_copy(version, rest[:-1] if is_lost else rest, text)
        seconds, increment = time.split(".")
        position = StreamPosition(Timestamp(int(seconds), int(increment)), _parse_token(token))
        return cls(cluster, scope, position, copy, is_lost)


class Stamp:
    """Writes the records of a running stream; the parts that never change are written once."""

    def __init__(self, cluster: str, scope: str, copy: CopyProgress | None = None) -> None:
        self._head = f"{_VERSION if copy is None else _COPYING}/{cluster}/{scope}/"
        self._tail = "" if copy is None else f"/{_copied(copy.through)}/{copy.id}/{copy.documents}"

    def __call__(self, time: Timestamp, token: dict[str, Any] | None) -> str:
        """Return the text of the record after `token`, or without a token after all changes of `time`."""
        return f"{self._head}{time.time}.{time.inc}/{_token(token)}{self._tail}"

    def lost(self, time: Timestamp, token: dict[str, Any] | None) -> str:
        """Return the record's text, marked as lost history about which a decision is pending."""
        return f"{self._head}{time.time}.{time.inc}/{_token(token)}{self._tail or '/'}/{_LOST}"


def scope_of(database: str, collection: str, pipeline: list[dict[str, Any]], options: dict[str, Any]) -> str:
    """Return a digest of the watched collection, the pipeline and the options, in 12 hexadecimal digits."""
    canonical = bson.encode({"db": database, "coll": collection, "pipeline": pipeline, "options": options})
    return hashlib.sha256(canonical).hexdigest()[:12]


def copied_through(document: RawBSONDocument) -> bytes:
    """Return the value of `ResumeRecord.copied` after `document` was copied. Other members may be invalid BSON."""
    return element_of(document, "_id")


def copied_identity(copied: bytes) -> RawBSONDocument:
    """Return the `_id` in `ResumeRecord.copied` as an expression, which MongoDB compares unchanged, whatever its type."""
    return literal_of(copied)


def token_time(token: Mapping[str, Any]) -> Timestamp:
    """Read the cluster time at the start of a resume token. Raises ValueError if the token has another form.

    ``_data`` is a KeyString in hexadecimal: the type byte 0x82 of a timestamp, its seconds, its increment, then the rest.
    """
    data = token["_data"]
    if not data.startswith("82"):
        raise ValueError(f"resume token has an unknown form: {data[:18]}")
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


def _parse_copy(version: str, parts: list[str], text: str) -> CopyProgress | None:
    if version == _COPYING and len(parts) == 3:
        copied, id_, documents = parts
        return CopyProgress(_parse_copied(copied), int(id_), int(documents))
    if version != _VERSION or len(parts) > 1:
        raise ValueError(f"not a resume record of version {_VERSION} or {_COPYING}: {text!r}")
    return CopyProgress(_parse_copied(parts[0])) if parts and parts[0] else None


def _copied(copied: bytes) -> str:
    return base64.urlsafe_b64encode(copied).decode() or _NONE


def _parse_copied(text: str) -> bytes:
    return b"" if text == _NONE else base64.urlsafe_b64decode(text)
