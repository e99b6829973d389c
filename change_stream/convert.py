"""Convert MongoDB changes and documents to broker events."""

import hashlib
from collections import Counter
from typing import Any

import bson
import msgspec
from bson.raw_bson import RawBSONDocument
from msgspec import UNSET, Raw

from change_stream.errors import CollectionReplaced
from change_stream.extended_json import CODEC, Encode, JsonMode, encoder, plain
from change_stream.fields import Fields
from change_stream.fragments import Fragments
from change_stream.message import Change
from change_stream.resume import Stamp, StreamPosition
from tweetwire import Event, StoredEvent

__all__ = ["OPERATIONS", "STRIPPED", "Converter", "Replaced", "Unconvertible", "document_id", "priority_of"]

STRIPPED = "tweetwire_stripped"
"""The member that marks a change whose documents the pipeline removed because it was too large to send."""

_ID_LENGTH_MAX = 256
_PRIORITY_MAX = 6
OPERATIONS = {
    "insert": "insert",
    "update": "update",
    "replace": "replace",
    "delete": "delete",
    "drop": "drop",
    "dropDatabase": "drop",
    "rename": "rename",
    "invalidate": "invalidate",
}
"""The event's name for each operation of MongoDB; other operations change no document and no collection."""


class Unconvertible(Exception):
    """A change that is not valid BSON or cannot be written as JSON.

    `raw` is the BSON, `size` its length in bytes. `raw` is empty if it could contain members that the settings leave out.
    """

    def __init__(self, reason: str, raw: bytes, size: int | None = None) -> None:
        super().__init__(reason)
        self.raw = raw
        self.size = len(raw) if size is None else size


class Replaced(Exception):
    """Another collection was renamed to the watched name. `event` reports this; `position` is the position after it."""

    def __init__(self, change: dict[str, Any], event: Event) -> None:
        super().__init__()
        self.lost = CollectionReplaced(change["to"]["coll"], change["ns"]["coll"])
        self.event = event
        self.position = StreamPosition.behind(change["_id"])


class Converter:
    """Converts the changes of one collection to events.

    Args:
        collection: the collection's name.
        producer: the name of the events' producer at the broker.
        mode: the form of JSON in which documents are written.
        key_path: dotted path of the member that becomes the event's key, or None for the `_id`.
        followers_path: dotted path of the number that gives the event's priority, or None for priority 0.
        fields: the members that documents keep, or None for all.
        msg_bytes_max: limit of the message and its checkpoint in bytes; a larger message loses its documents.
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
        # The numbers of the event itself stay plain in every mode.
        self._encode = encoder("plain")
        self._encode_document: Encode | None = None if mode == "plain" else encoder(mode)

    def begin_session(self) -> None:
        """Forget the fragments of an incomplete change: a session begins before the first fragment."""
        self._fragments = Fragments()

    @property
    def is_between_fragments(self) -> bool:
        """Whether some fragments of a change have arrived, but not its last one."""
        return self._fragments.is_open

    def change(self, raw: RawBSONDocument, sequence: int, stamp: Stamp) -> Event | None:
        """Convert one change as MongoDB sent it. Return None for a fragment that is not the last of its change.

        Raises:
            Unconvertible: the change is not valid BSON or cannot be written as JSON.
            Replaced: the change renames another collection to the watched name.
        """
        try:
            change: dict[str, Any] | None = bson.decode(raw.raw, CODEC)
            if change is not None and "splitEvent" in change:
                change = self._fragments.add(change)
            if change is None:
                return None
            if change["operationType"] == "rename" and change["to"]["coll"] == self._collection:
                checkpoint = stamp.lost(change["clusterTime"], change["_id"])
                raise Replaced(change, self._event(change, sequence, checkpoint))
            return self._event(change, sequence, stamp(change["clusterTime"], change["_id"]))
        except (bson.errors.BSONError, TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
            raise self._unconvertible(error, raw) from error

    def snapshot(
        self, raw: RawBSONDocument, position: StreamPosition, sequence: int, checkpoint: str, copy_id: int = 0
    ) -> Event:
        """Convert a document as it was at `position`. Raises Unconvertible if it cannot be written as JSON."""
        try:
            document = bson.decode(raw.raw, CODEC)
            msg = Change("snapshot", self._collection, self._json(self._kept(document)), None, None, position.at_ms)
            msg.copy = copy_id
            msg.document_key = self._json({"_id": document["_id"]})
            return self._wrap(document_id(document["_id"]), document, msg, sequence, checkpoint)
        except (bson.errors.BSONError, TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
            raise self._unconvertible(error, raw) from error

    def vanished(
        self, last: StoredEvent, position: StreamPosition, sequence: int, checkpoint: str, copy_id: int
    ) -> Event:
        """Make the delete of a document that a copy did not find. `last` is the last event of the document in the topic."""
        msg = Change("delete", self._collection, None, None, None, position.at_ms)
        msg.copy = copy_id
        msg.document_key = msgspec.json.decode(bytes(last.msg), type=dict[str, Raw]).get("document_key", UNSET)
        self.operations[msg.op] += 1
        return Event(
            id=last.id,
            key=last.key,
            priority=last.priority,
            msg=Raw(self._encode(msg)),
            producer=self._producer,
            sequence=sequence,
            checkpoint=checkpoint,
        )

    def control(self, msg: Change, sequence: int, checkpoint: str) -> Event:
        """Make the event for a change of the whole collection, or for a gap."""
        return self._wrap(self._collection, None, msg, sequence, checkpoint)

    def _event(self, change: dict[str, Any], sequence: int, checkpoint: str) -> Event:
        document = change.get("fullDocument")
        before = change.get("fullDocumentBeforeChange")
        described = change.get("updateDescription")
        wall = change.get("wallTime")
        msg = Change(
            OPERATIONS[change["operationType"]],
            self._collection,
            self._json(self._kept(document)),
            None if described is None else self._json(self._changed(described)),
            self._json(self._kept(before)),
            int(wall) if wall is not None else change["clusterTime"].time * 1000,
        )
        if "to" in change:
            msg.from_, msg.to = change["ns"]["coll"], change["to"]["coll"]
        if STRIPPED in change:
            msg.omitted = 0
        if "txnNumber" in change:
            msg.transaction = self._json({"lsid": change.get("lsid"), "txnNumber": change["txnNumber"]})
        key = change.get("documentKey")
        if key is None:
            return self.control(msg, sequence, checkpoint)
        if self._fields is not None:
            key = self._fields.key(key)
        msg.document_key = self._json(key)
        # In a sharded collection, `_id` is unique only together with the shard key.
        identity = document_id(key["_id"] if len(key) == 1 else key)
        return self._wrap(identity, document if document is not None else before, msg, sequence, checkpoint)

    def _wrap(self, identity: str, document: Any, msg: Change, sequence: int, checkpoint: str) -> Event:
        self.operations[msg.op] += 1
        key = self._key_of(document) if self._key_path else None
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
        encoded = self._encode(msg)
        if len(encoded) > bytes_max:
            msg.document_key = UNSET
            encoded = self._encode(msg)
        return encoded

    def _key_of(self, document: Any) -> Any:
        path = self._key_path or []
        return _value_at(document, path) if self._fields is None else self._fields.value_at(document, path)

    def _kept(self, document: Any) -> Any:
        return document if self._fields is None else self._fields.document(document)

    def _changed(self, described: dict[str, Any]) -> dict[str, Any]:
        changed = {
            "updated": described.get("updatedFields", {}),
            "removed": described.get("removedFields", []),
            "truncated": described.get("truncatedArrays", []),
        }
        return changed if self._fields is None else self._fields.changed(changed, described.get("disambiguatedPaths"))

    def refused(self, reason: str, raw: RawBSONDocument) -> Unconvertible:
        """Return the rejection of a change that the user's stages refuse."""
        if self._fields is not None:
            return Unconvertible("the stages of --pipeline fail for this change", b"", len(raw.raw))
        return Unconvertible(f"the stages of --pipeline fail for this change ({reason})", bytes(raw.raw))

    def _unconvertible(self, error: Exception, raw: RawBSONDocument) -> Unconvertible:
        # Members can be left out only of a decoded change. So if members must be left out, a change that cannot be decoded is
        # not kept, and neither is the error's text, which may show a part of it.
        if self._fields is not None:
            return Unconvertible(type(error).__name__, b"", len(raw.raw))
        return Unconvertible(f"{type(error).__name__}: {error}", bytes(raw.raw), len(raw.raw))

    def _json(self, document: Any) -> Any:
        if document is None or self._encode_document is None:
            return document
        return Raw(self._encode_document(document))


def document_id(value: Any) -> str:
    """Write an `_id` of any BSON type as 1 to 256 characters; a longer text is cut and ends in a digest of the whole."""
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
    """Return the number of digits of `followers` minus one, at most 6; 0 if `followers` is not a count."""
    if not isinstance(followers, int) or isinstance(followers, bool) or followers < 0:
        return 0
    return min(len(str(int(followers))) - 1, _PRIORITY_MAX)


def _value_at(document: Any, path: list[str] | None) -> Any:
    for name in path or ():
        if not isinstance(document, dict):
            return None
        document = document.get(name)
    return document
