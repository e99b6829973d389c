"""The chain of manifests, and the fence: of two brokers that continue one chain, exactly one wins each number.

The next manifest is created under the next number, and a store creates a name only once. So a broker that has not read the
newest manifest fails, whatever a listing or a clock says.

Always true:

- `number` is the newest manifest that this object has read or written;
- the next manifest gets `number` + 1, and no other number;
- a number stays taken: old manifests are emptied and not deleted;
- a number that is taken by our own writer counts as written, since the reply may have been lost. Its content may be that
  of an earlier attempt, so the current content is then written under the next number.
"""

from collections.abc import Callable

import msgspec

from broker.tiers.errors import Fenced, ObjectDamaged, StoreAway
from broker.tiers.leftovers import KEPT_MANIFESTS
from broker.tiers.manifest import Manifest, decode_manifest, encode_manifest
from broker.tiers.object_names import manifest_folder, manifest_number, manifest_object
from broker.tiers.store import Store
from tweetwire.protocol.errors import StartError

__all__ = ["Chain", "find_chain", "read_newest"]


def find_chain(store: Store) -> str:
    """Return the only chain below the place of a store. Raises StartError if there is none, or if there are several."""
    found = [name for name in store.folders() if any(True for _ in store.list_objects(manifest_folder(name)))]
    if not found:
        raise StartError(f"there is no broker's data at {store.shown}; pass the URL that the broker's --tier had")
    if len(found) > 1:
        names = ", ".join(found)
        raise StartError(f"{len(found)} brokers have uploaded to {store.shown}; choose one with --chain: {names}")
    return found[0]


def read_newest(store: Store, chain: str, known: int = 0) -> Manifest | None:
    """Return the newest manifest of a chain, None if it has none. Raises StoreAway, StoreUnusable, ObjectDamaged.

    If the manifest `known` exists, older ones are not listed, since a chain may have millions. A listing may be stale, so the
    numbers after the highest listed one are tried, too.
    """
    number = _highest_listed(store, chain, manifest_object(chain, known - 1)) if known else 0
    number = number or _highest_listed(store, chain, None)
    found = read_manifest(store, chain, number) if number else None
    if number and found is None:
        raise ObjectDamaged(f"{store.shown}/{manifest_object(chain, number)} is listed, but it is missing")
    while (after := read_manifest(store, chain, number + 1)) is not None:
        found, number = after, number + 1
    return found


def _highest_listed(store: Store, chain: str, after: str | None) -> int:
    listed = (manifest_number(found.name) for found in store.list_objects(manifest_folder(chain), after=after))
    return max((number for number in listed if number is not None), default=0)


def read_manifest(store: Store, chain: str, number: int) -> Manifest | None:
    """Return the manifest with this number, None if there is none. Raises StoreAway, StoreUnusable, ObjectDamaged."""
    name = manifest_object(chain, number)
    data = store.get(name)
    return None if data is None else decode_manifest(data, name)


class Chain:
    """The chain `name` as one writer sees it. `note_number` is called with each number before the next one is tried."""

    def __init__(self, store: Store, name: str, writer: str, note_number: Callable[[int], None]) -> None:
        self.store = store
        self.name = name
        self.writer = writer
        self.number = 0
        self.epoch = 0
        self._note_number = note_number

    def begin(self, newest: Manifest | None) -> None:
        """Continue after the newest manifest as a new writer."""
        self.number = 0 if newest is None else newest.number
        self.epoch = 1 if newest is None else newest.epoch + 1
        self._note_number(self.number)

    def append(self, make: Callable[[int], Manifest]) -> Manifest:
        """Write the next manifest, which `make` returns for its number.

        Raises Fenced if another writer has taken the number, StoreAway if it is unknown whether the manifest was written;
        calling again is then right. Raises StoreUnusable.
        """
        while True:
            manifest = make(self.number + 1)
            data = encode_manifest(manifest)
            name = manifest_object(self.name, manifest.number)
            if self.store.create(name, data):
                self._advance()
                return manifest
            taken = self.store.get(name)
            if taken is None:
                # Some stores refuse one of two simultaneous requests, even if they have carried out neither.
                raise StoreAway(f"{self.store.shown} has refused {name}, but does not hold it")
            other = decode_manifest(taken, name)
            if other.writer != self.writer:
                raise Fenced(other.writer)
            self._advance()
            if taken == data:
                return manifest

    def empty_old(self) -> None:
        """Empty the manifest that is no longer kept whole. Its number stays taken. Raises StoreAway, StoreUnusable."""
        number = self.number - KEPT_MANIFESTS
        old = read_manifest(self.store, self.name, number) if number > 0 else None
        if old is not None and (old.topics or old.state is not None):
            empty = msgspec.structs.replace(old, topics={}, state=None)
            self.store.put(manifest_object(self.name, number), encode_manifest(empty))

    def check(self) -> None:
        """Raise Fenced if another writer has continued the chain. Raises StoreAway, StoreUnusable, ObjectDamaged."""
        other = read_manifest(self.store, self.name, self.number + 1)
        if other is not None and other.writer != self.writer:
            raise Fenced(other.writer)

    def _advance(self) -> None:
        self.number += 1
        self._note_number(self.number)
