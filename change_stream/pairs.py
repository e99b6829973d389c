"""Parse flags of the form COLLECTION=VALUE, and derive a collection's producer name."""

import hashlib
import re
from collections.abc import Iterable

__all__ = ["by_collection", "check_database", "check_topic", "producer_name", "split_map", "split_pair", "values_of"]

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
_NAME_MAX = 128
_DIGEST_LENGTH = 12
_DATABASE = re.compile(r'[^/\\. "$*<>:|?\x00]{1,63}')


def split_pair(pair: str) -> tuple[str, str]:
    """Split at the first ``=``. Raises ValueError if a side is empty."""
    left, _, right = pair.partition("=")
    return _both(left, right, pair)


def split_map(pair: str) -> tuple[str, str]:
    """Split a collection from its topic at the last ``=``. Raises ValueError if a side is empty."""
    left, _, right = pair.rpartition("=")
    return _both(left, right, pair)


def by_collection(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the value of each collection. Raises ValueError if a collection is named twice."""
    found: dict[str, str] = {}
    for collection, value in pairs:
        if collection in found:
            raise ValueError(f"the collection {collection} is named twice; name it once")
        found[collection] = value
    return found


def values_of(pairs: Iterable[str], collection: str) -> list[str]:
    """Return the values of one collection."""
    return [value for name, value in map(split_pair, pairs) if name == collection]


def check_database(name: str) -> str:
    """Return a valid database name. Raises ValueError if MongoDB does not allow it."""
    if not _DATABASE.fullmatch(name):
        raise ValueError(
            f'{name!r} is not a database name: use 1 to 63 characters, and none of / \\ . " $ * < > : | ? or a space'
        )
    return name


def check_topic(name: str) -> str:
    """Return a valid topic name. Raises ValueError if the broker does not allow it."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a topic name: use letters, digits, _ . and -, at most 128")
    return name


def producer_name(database: str, collection: str) -> str:
    """Return a collection's producer name: ``cdc.<database>.<collection>`` if the broker allows it.

    Otherwise each forbidden character becomes ``_``, and a digest of the whole name keeps different names distinct.
    """
    name = f"cdc.{database}.{collection}"
    if _NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{_NOT_IN_NAMES.sub('_', name)[: _NAME_MAX - _DIGEST_LENGTH - 1]}.{digest}"


def _both(left: str, right: str, pair: str) -> tuple[str, str]:
    if not (left and right):
        raise ValueError(f"{pair!r} is not COLLECTION=VALUE")
    return left, right
