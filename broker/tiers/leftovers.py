"""Objects that no manifest names any more: which those are, and when they are deleted.

Always true: an object is deleted only `LEAVE_S` after a manifest without it was written. So a program that has read the
manifest before can finish its work.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from broker.tiers.manifest import Manifest
from broker.tiers.object_names import index_object, lines_object

__all__ = ["KEPT_MANIFESTS", "LEAVE_S", "Leftovers", "named_objects"]

LEAVE_S: Final = 3600.0
KEPT_MANIFESTS: Final = 100
"""How many manifests stay whole. Older ones are emptied, and keep their numbers, since a number must never be created twice."""


def named_objects(chain: str, manifest: Manifest) -> set[str]:
    """Return the names of all objects that a manifest names."""
    found = set() if manifest.state is None else {manifest.state.name}
    for topic, named in manifest.topics.items():
        for segment in named.segments:
            found.add(lines_object(chain, topic, segment.name))
            found.add(index_object(chain, topic, segment.name))
    return found


class Leftovers:
    """The objects that the manifests of one process have left behind. Times are in seconds, of `clock`."""

    def __init__(self, chain: str, newest: Manifest, clock: Callable[[], float]) -> None:
        self._chain = chain
        self._clock = clock
        self._named = named_objects(chain, newest)
        self._left: deque[tuple[float, set[str]]] = deque()

    def note_manifest(self, manifest: Manifest) -> None:
        """Note a manifest that was written."""
        named = named_objects(self._chain, manifest)
        if gone := self._named - named:
            self._left.append((self._clock() + LEAVE_S, gone))
        self._named = named

    def take_due(self) -> list[str]:
        """Take out the objects whose time is over. An object that is named again stays."""
        due: set[str] = set()
        while self._left and self._left[0][0] <= self._clock():
            due |= self._left.popleft()[1]
        return sorted(due - self._named)
