"""Which members of a document an event carries, and under which names.

Paths are dotted and reach through arrays. In what an update touched, a path may also lie above or below the member that
changed, or hold positions in arrays: ``last.3.score`` is the path ``last.score``.
"""

from collections.abc import Iterable
from typing import Any

__all__ = ["Fields"]

_Tree = dict[str, Any]
_WHOLE: _Tree = {}


class Fields:
    """Keeps `include` (everything, if there is none) save `exclude`, and renames by `rename` (path → new last name).

    The `_id` stays whatever is included, since nobody could apply the events without it.
    """

    def __init__(self, include: Iterable[str] = (), exclude: Iterable[str] = (), rename: dict[str, str] | None = None):
        included = list(include)
        self._include = _tree([*included, "_id"]) if included else _WHOLE
        self._exclude = _tree(exclude)
        self._rename = {tuple(path.split(".")): name for path, name in (rename or {}).items()}

    @property
    def is_everything(self) -> bool:
        """Whether documents stay as they are."""
        return not (self._include or self._exclude or self._rename)

    def document(self, document: Any) -> Any:
        """Return what is kept of a document, or of None."""
        return self._value(document, self._include, self._exclude, ())

    def changed(self, changed: dict[str, Any]) -> dict[str, Any]:
        """Return what is kept of ``{"updated", "removed", "truncated"}``."""
        updated = {}
        for path, value in changed["updated"].items():
            kept = self._kept(path)
            if kept is not None:
                name, include, exclude, names = kept
                updated[name] = self._value(value, include, exclude, names)
        removed = [kept[0] for path in changed["removed"] if (kept := self._kept(path)) is not None]
        truncated = [
            {**cut, "field": kept[0]} for cut in changed["truncated"] if (kept := self._kept(cut["field"])) is not None
        ]
        return {"updated": updated, "removed": removed, "truncated": truncated}

    def _value(self, value: Any, include: _Tree, exclude: _Tree, names: tuple[str, ...]) -> Any:
        if isinstance(value, list):
            return [self._value(item, include, exclude, names) for item in value]
        if not isinstance(value, dict):
            return value
        kept = {}
        for name, member in value.items():
            below = (*names, name)
            if include and name not in include:
                continue
            if name in exclude and not exclude[name]:
                continue
            kept[self._rename.get(below, name)] = self._value(
                member, include.get(name, _WHOLE), exclude.get(name, _WHOLE), below
            )
        return kept

    def _kept(self, path: str) -> tuple[str, _Tree, _Tree, tuple[str, ...]] | None:
        """Walk down a path: its new name and what holds below it, None where it is left out."""
        include, exclude = self._include, self._exclude
        names: tuple[str, ...] = ()
        written = []
        for name in path.split("."):
            if name.isdigit() and names:
                written.append(name)
                continue
            names = (*names, name)
            if include and name not in include:
                return None
            if name in exclude and not exclude[name]:
                return None
            include, exclude = include.get(name, _WHOLE), exclude.get(name, _WHOLE)
            written.append(self._rename.get(names, name))
        return ".".join(written), include, exclude, names


def _tree(paths: Iterable[str]) -> _Tree:
    """Return paths as a tree; a leaf, the empty tree, stands for everything below it."""
    root: _Tree = {}
    for path in sorted(paths, key=len):
        place = root
        *parents, last = path.split(".")
        for name in parents:
            if name in place and not place[name]:
                break  # all of it is named already
            place = place.setdefault(name, {})
        else:
            place[last] = {}
    return root
