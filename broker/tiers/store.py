"""An object store, with the few calls that the tier needs. All of them wait, so call them in a thread.

Always true: `create` makes an object only if no object has its name; `put` writes a whole object or none.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import ObjectStore

from broker.tiers.errors import ObjectDamaged, StoreAway, StoreUnusable

__all__ = ["Store", "StoredObject"]


class StoredObject(NamedTuple):
    """An object in a listing: its name, its size in bytes, and when (ms) the store says that it was written."""

    name: str
    size: int
    modified_ms: int


class Store:
    """A place in an object store. Names of objects are relative to it. `shown` is the place as users write it."""

    def __init__(self, objects: ObjectStore, shown: str) -> None:
        self.shown = shown
        self._objects = objects

    def create(self, name: str, data: bytes) -> bool:
        """Create an object. Returns False if the name was taken. Raises StoreAway, StoreUnusable.

        After StoreAway the object may exist, since the reply may have been lost.
        """
        try:
            with self._translated(name):
                obstore.put(self._objects, name, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return False
        except FileNotFoundError:
            raise self._no_bucket() from None
        return True

    def put(self, name: str, data: bytes) -> None:
        """Write an object in one request, also over an existing one. Raises StoreAway, StoreUnusable."""
        try:
            with self._translated(name):
                obstore.put(self._objects, name, data, use_multipart=False)
        except FileNotFoundError:
            raise self._no_bucket() from None

    def get(self, name: str) -> bytes | None:
        """Return an object, or None if there is none. Raises StoreAway, StoreUnusable."""
        try:
            with self._translated(name):
                return obstore.get(self._objects, name).bytes().to_bytes()
        except FileNotFoundError:
            return None

    def get_range(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes of an object from `start` up to `end`. Raises ObjectDamaged, StoreAway, StoreUnusable."""
        try:
            with self._translated(name):
                data = obstore.get_range(self._objects, name, start=start, end=end).to_bytes()
        except FileNotFoundError:
            raise ObjectDamaged(f"{self.shown}/{name} is missing") from None
        if len(data) != end - start:
            raise ObjectDamaged(f"{self.shown}/{name} ends before byte {end}")
        return data

    def size_of(self, name: str) -> int | None:
        """Return the size of an object in bytes, or None if there is none. Raises StoreAway, StoreUnusable."""
        try:
            with self._translated(name):
                return obstore.head(self._objects, name)["size"]
        except FileNotFoundError:
            return None

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects. A missing object counts as deleted. Raises StoreAway, StoreUnusable."""
        for name in names:
            try:
                with self._translated(name):
                    obstore.delete(self._objects, name)
            except FileNotFoundError:
                pass

    def list_objects(self, folder: str, *, after: str | None = None) -> Iterator[StoredObject]:
        """Yield the objects below a folder, whose names are higher than `after`, in any order.

        Raises StoreAway, StoreUnusable.
        """
        try:
            with self._translated(folder):
                for chunk in obstore.list(self._objects, folder or None, offset=after):
                    for found in chunk:
                        modified_ms = round(found["last_modified"].timestamp() * 1000)
                        yield StoredObject(found["path"], found["size"], modified_ms)
        except FileNotFoundError:
            raise self._no_bucket() from None

    def folders(self, folder: str = "") -> list[str]:
        """Return the names of the folders in a folder. Raises StoreAway, StoreUnusable."""
        try:
            with self._translated(folder):
                found = obstore.list_with_delimiter(self._objects, folder or None)
        except FileNotFoundError:
            raise self._no_bucket() from None
        return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"])

    def _no_bucket(self) -> StoreUnusable:
        return StoreUnusable(f"there is no bucket for {self.shown}; make it, or correct the URL")

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        """Translate the errors of the library, except those for an object that exists or is missing."""
        try:
            yield
        except (AlreadyExistsError, PreconditionError):
            raise
        except (PermissionDeniedError, UnauthenticatedError, NotSupportedError, InvalidPathError) as error:
            raise StoreUnusable(f"{self.shown} refuses {name}: {_first_line(error)}") from error
        except (BaseError, OSError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            # The library has no separate error for a listing of a bucket that does not exist.
            if "404 Not Found" in str(error):
                raise self._no_bucket() from error
            raise StoreAway(f"{self.shown} does not answer: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """Return the sentence of an error without the library's debugging output, which follows in further lines."""
    return next(iter(str(error).splitlines()), type(error).__name__)
