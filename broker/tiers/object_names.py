"""The names of the tier's objects, relative to the place that ``--tier`` names.

::

    <chain>/manifest/<number>.json
    <chain>/topics/<topic>/<first>-<next>-<crc>.jsonl.gz     the lines of a segment
    <chain>/topics/<topic>/<first>-<next>-<crc>.index        its index, and the table of its members
    <chain>/state/<manifest number>-<crc>.snapshot
    <chain>/probe/<nonce>

The names of segments and states hold the crc32c of their content. So a writer that no longer owns the chain cannot replace
an object that a manifest names: with other bytes it writes to another name.
"""

from typing import Final, NamedTuple

__all__ = [
    "index_object",
    "lines_object",
    "manifest_folder",
    "manifest_number",
    "manifest_object",
    "probe_object",
    "segment_stem",
    "state_object",
    "topic_folder",
    "topic_of_object",
]

_DIGITS: Final = 20
_TOPIC_PARTS: Final = 3


def manifest_folder(chain: str) -> str:
    """Return the folder of a chain's manifests."""
    return f"{chain}/manifest"


def manifest_object(chain: str, number: int) -> str:
    """Return the name of a manifest."""
    return f"{chain}/manifest/{number:0{_DIGITS}d}.json"


def manifest_number(name: str) -> int | None:
    """Return the number of the manifest with this name, None if the name is not that of a manifest."""
    stem, dot, suffix = name.rpartition("/")[2].partition(".")
    return int(stem) if suffix == "json" and dot and len(stem) == _DIGITS and stem.isdecimal() else None


def topic_folder(chain: str, topic: str) -> str:
    """Return the folder of a topic's objects."""
    return f"{chain}/topics/{topic}"


def segment_stem(first: int, after: int, crc: int) -> str:
    """Return the name of a segment's two objects without folder and ending."""
    return f"{first:0{_DIGITS}d}-{after:0{_DIGITS}d}-{crc:08x}"


def lines_object(chain: str, topic: str, stem: str) -> str:
    """Return the name of the object with a segment's lines."""
    return f"{topic_folder(chain, topic)}/{stem}.jsonl.gz"


def index_object(chain: str, topic: str, stem: str) -> str:
    """Return the name of the object with a segment's index."""
    return f"{topic_folder(chain, topic)}/{stem}.index"


def state_object(chain: str, number: int, crc: int) -> str:
    """Return the name of a state. `number` is that of the first manifest that names the state."""
    return f"{chain}/state/{number:0{_DIGITS}d}-{crc:08x}.snapshot"


def probe_object(chain: str, nonce: str) -> str:
    """Return the name of the object by which a start tests the store."""
    return f"{chain}/probe/{nonce}"


class ObjectPlace(NamedTuple):
    """The topic of a segment's object, and the segment's first offset."""

    topic: str
    first: int


def topic_of_object(name: str) -> ObjectPlace | None:
    """Return the place in the name of a segment's object, None for other objects."""
    parts = name.split("/")
    if len(parts) < _TOPIC_PARTS or parts[-3] != "topics":
        return None
    first = parts[-1][:_DIGITS]
    return ObjectPlace(parts[-2], int(first)) if first.isdecimal() and len(first) == _DIGITS else None
