"""A MongoDB change → an event of the broker."""

import hashlib
from collections import Counter
from typing import Any

import bson
import msgspec
from bson.raw_bson import RawBSONDocument
from msgspec import UNSET, Raw, Struct, UnsetType

from broker import Event
from change_stream.extended_json import CODEC, Encode, JsonMode, encoder, plain
from change_stream.fields import Fields
from change_stream.fragments import Fragments
from change_stream.resume import Position, Stamp

__all__ = ["STRIPPED", "Change", "Converter", "Unconvertible", "document_id", "priority_of"]

STRIPPED = "tweetwire_stripped"
"""A member that the pipeline sets where it takes the documents out of a change that is too large to be sent."""

_ID_LENGTH_MAX = 256
_PRIORITY_MAX = 6
_OPERATIONS = {
    "insert": "insert",
    "update": "update",
    "replace": "replace",
    "delete": "delete",
    "drop": "drop",
    "dropDatabase": "drop",
    "rename": "rename",
    "invalidate": "invalidate",
}


class Change(Struct):
    """The `msg` of an event: what happened to one document, or to the collection.

    `document` is the document after the change, where MongoDB still has it; `before` the one before it, where the
    collection keeps pre-images; `changed` what an update touched: ``{"updated": {path: value}, "removed": [path],
    "truncated": [{"field", "newSize"}]}``. `at` is in milliseconds since 1970 UTC.
    """

    op: str
    collection: str
    document: Any
    changed: Any
    before: Any
    at: int
    to: str | UnsetType = UNSET
    """A renamed collection's new name."""
    transaction: Any = UNSET
    """``{"lsid", "txnNumber"}`` of the transaction that the change is part of."""
    gap: Any = UNSET
    """``{"from", "to", "reason"}``: what happened between these milliseconds since 1970 UTC is not known."""
    omitted: int | UnsetType = UNSET
    """Bytes that this message had with its documents, which were more than the broker or MongoDB lets through; 0: unknown."""


class Unconvertible(Exception):
    """A change that is no valid BSON or has no JSON; `raw` are its bytes."""

    def __init__(self, reason: str, raw: bytes) -> None:
        super().__init__(reason)
        self.raw = raw


class Converter:
    """Makes the events of one collection.

    `key_path` and `followers_path` are dotted paths into the document: what groups an entity's events, and the number that
    their priority comes from; None for neither. `fields` are what documents keep. Where a message and its checkpoint are
    above `msg_bytes_max`, it goes without its documents.
    """

    def __init__(
        self,
        collection: str,
        producer: str,
        *,
        mode: JsonMode = "plain",
        key_path: str | None = None,
        followers_path: str | None = None,
        fields: Fields | None = None,
        msg_bytes_max: int = 1_000_000,
    ) -> None:
        self._collection = collection
        self._producer = producer
        self._key_path = key_path.split(".") if key_path else None
        self._followers_path = followers_path.split(".") if followers_path else None
        self._fields = None if fields is None or fields.is_everything else fields
        self._msg_bytes_max = msg_bytes_max
        self._fragments = Fragments()
        self.operations: Counter[str] = Counter()
        self.omitted = 0
        # The envelope's own numbers stay plain in every mode.
        self._encode = encoder("plain")
        self._encode_document: Encode | None = None if mode == "plain" else encoder(mode)

    def begin_session(self) -> None:
        """Forget the pieces of a change: a session begins before the first one."""
        self._fragments = Fragments()

    @property
    def is_between_fragments(self) -> bool:
        """Whether a change in pieces has begun and not ended."""
        return self._fragments.is_open

    def change(self, raw: RawBSONDocument, sequence: int, stamp: Stamp) -> Event | None:
        """Convert one change as MongoDB sent it; None for a piece of a change that is not its last.

        Raises Unconvertible.
        """
        try:
            change: dict[str, Any] | None = bson.decode(raw.raw, CODEC)
            if change is not None and "splitEvent" in change:
                change = self._fragments.add(change)
            if change is None:
                return None
            return self._event(change, sequence, stamp(change["clusterTime"], change["_id"]))
        except (bson.errors.BSONError, TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
            raise Unconvertible(f"{type(error).__name__}: {error}", bytes(raw.raw)) from error

    def snapshot(self, raw: RawBSONDocument, position: Position, sequence: int, checkpoint: str) -> Event:
        """Convert a document as it was at `position`. Raises Unconvertible."""
        try:
            document = bson.decode(raw.raw, CODEC)
            msg = Change("snapshot", self._collection, self._json(self._kept(document)), None, None, position.at_ms)
            return self._wrap(document_id(document["_id"]), document, msg, sequence, checkpoint)
        except (bson.errors.BSONError, TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
            raise Unconvertible(f"{type(error).__name__}: {error}", bytes(raw.raw)) from error

    def control(self, msg: Change, sequence: int, checkpoint: str) -> Event:
        """Make the event of something that befell the whole collection."""
        return self._wrap(self._collection, None, msg, sequence, checkpoint)

    def _event(self, change: dict[str, Any], sequence: int, checkpoint: str) -> Event:
        document = change.get("fullDocument")
        before = change.get("fullDocumentBeforeChange")
        described = change.get("updateDescription")
        wall = change.get("wallTime")
        msg = Change(
            _OPERATIONS[change["operationType"]],
            self._collection,
            self._json(self._kept(document)),
            None if described is None else self._json(self._changed(described)),
            self._json(self._kept(before)),
            int(wall) if wall is not None else change["clusterTime"].time * 1000,
        )
        if "to" in change:
            msg.to = change["to"]["coll"]
        if STRIPPED in change:
            msg.omitted = 0
        if "txnNumber" in change:
            msg.transaction = self._json({"lsid": change.get("lsid"), "txnNumber": change["txnNumber"]})
        key = change.get("documentKey")
        if key is None:
            return self.control(msg, sequence, checkpoint)
        # A sharded collection's documents are told apart by their shard key too.
        identity = document_id(key["_id"] if len(key) == 1 else key)
        return self._wrap(identity, document if document is not None else before, msg, sequence, checkpoint)

    def _wrap(self, identity: str, document: Any, msg: Change, sequence: int, checkpoint: str) -> Event:
        self.operations[msg.op] += 1
        key = _value_at(document, self._key_path) if self._key_path else None
        return Event(
            id=identity,
            key=identity if key is None else document_id(key),
            priority=priority_of(_value_at(document, self._followers_path)) if self._followers_path else 0,
            msg=Raw(self._within(self._msg_bytes_max - len(checkpoint), msg)),
            producer=self._producer,
            sequence=sequence,
            checkpoint=checkpoint,
        )

    def _within(self, bytes_max: int, msg: Change) -> bytes:
        encoded = self._encode(msg)
        if len(encoded) <= bytes_max:
            return encoded
        msg.document = msg.before = msg.changed = None
        msg.omitted = len(encoded)
        self.omitted += 1
        return self._encode(msg)

    def _kept(self, document: Any) -> Any:
        return document if self._fields is None else self._fields.document(document)

    def _changed(self, described: dict[str, Any]) -> dict[str, Any]:
        changed = {
            "updated": described.get("updatedFields", {}),
            "removed": described.get("removedFields", []),
            "truncated": described.get("truncatedArrays", []),
        }
        return changed if self._fields is None else self._fields.changed(changed)

    def _json(self, document: Any) -> Any:
        if document is None or self._encode_document is None:
            return document
        return Raw(self._encode_document(document))


def document_id(value: Any) -> str:
    """Write an `_id` of any BSON type as 1 to 256 characters; what is longer ends in a digest of the whole."""
    if type(value) is str:
        text = value or '""'
    else:
        plain_text = msgspec.json.encode(value, enc_hook=plain).decode()
        text = plain_text[1:-1] if plain_text[0] == '"' and len(plain_text) > 2 else plain_text
    if len(text) <= _ID_LENGTH_MAX:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{text[: _ID_LENGTH_MAX - len(digest) - 1]}:{digest}"


def priority_of(followers: Any) -> int:
    """Return the number of digits of `followers`, less one, at most 6; 0 for what is no count."""
    if not isinstance(followers, int) or isinstance(followers, bool) or followers < 0:
        return 0
    return min(len(str(int(followers))) - 1, _PRIORITY_MAX)


def _value_at(document: Any, path: list[str] | None) -> Any:
    for name in path or ():
        if not isinstance(document, dict):
            return None
        document = document.get(name)
    return document
