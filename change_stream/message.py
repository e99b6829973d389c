"""The message of an event, which describes a change to consumers."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

__all__ = ["Change"]


class Change(Struct):
    """The `msg` of an event: a change of one document, or of the whole collection.

    `document` is the document after the change, if MongoDB still has it. `before` is the document before the change, if
    the collection keeps pre-images. `changed` is what an update modified: ``{"updated": {path: value}, "removed":
    [path], "truncated": [{"field", "newSize"}]}``. `at` is in milliseconds since 1970 UTC.
    """

    op: str
    collection: str
    document: Any
    changed: Any
    before: Any
    at: int
    document_key: Any = UNSET
    """The changed document's `_id`, and its shard key if it has one, in the same JSON form as documents."""
    from_: str | UnsetType = field(name="from", default=UNSET)
    """The old name of a renamed collection."""
    to: str | UnsetType = UNSET
    """The new name of a renamed collection."""
    copy: int | UnsetType = UNSET
    """The sequence of the event ``snapshot_begin`` of the copy to which this event belongs."""
    documents: int | UnsetType = UNSET
    """How many documents a copy has: approximately at its beginning, exactly at its end."""
    transaction: Any = UNSET
    """``{"lsid", "txnNumber"}`` of the transaction that contains the change."""
    gap: Any = UNSET
    """``{"from", "to", "reason"}``: the changes between these times (milliseconds since 1970 UTC) are unknown."""
    omitted: int | UnsetType = UNSET
    """Set if the documents were left out, because the message with them exceeded a limit of the broker or MongoDB.

    The value is the size of that message in bytes, or 0 if the size is unknown.
    """
