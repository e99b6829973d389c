"""Select and rename the members of a document that an event carries.

A path is a tuple of names. Two rules turn MongoDB's data into paths. They hold for flags, for documents and for update
descriptions:

- A name that contains a dot counts as several names, split at its dots. So the member ``"a.b"`` of a document has the same
  path as the member ``b`` of its member ``a``: their text in an update description is the same.
- A position in an array is not part of a path. Paths reach through arrays.

One function, `_step`, decides about one name. It is used for whole documents and for the paths of update descriptions, so
that both agree. Digits in an update description are a position or a name. MongoDB reports which one from version 6.1 on
(``disambiguatedPaths``). Without that, both readings are tried. Where they give different results, the path is left out.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from bson.dbref import DBRef

from change_stream.masks import Mask

__all__ = ["Fields"]


class _Rules:
    """The rules of the flags for one path. `below` holds the rules for longer paths that begin with it."""

    __slots__ = ("below", "is_excluded", "is_included", "is_taken", "leads", "mask", "name")

    def __init__(self) -> None:
        self.below: dict[str, _Rules] = {}
        self.is_included = False
        self.leads = False
        """Whether an included path begins with this path."""
        self.is_excluded = False
        self.mask: Mask | None = None
        self.name: str | None = None
        """The new name of the path's last component, None to keep it."""
        self.is_taken = False
        """Whether another member is renamed to the name of this member."""

    def at(self, path: tuple[str, ...]) -> "_Rules":
        """Return the rules of a path below this path, creating missing rules."""
        rules = self
        for name in path:
            rules = rules.below.setdefault(name, _Rules())
        return rules


_Place = tuple[_Rules, bool]
"""A place during a walk: the rules there, and whether a value there is included."""

_End = tuple[tuple[str, ...], _Place, bool]
"""The end of a walk along an update's path: the names to write, the place, and whether it ends with an array position."""

_EVERYTHING: Final[_Place] = (_Rules(), True)
_POSITION: Final = re.compile(r"0|[1-9][0-9]*")
_HIDDEN: Final[_End] = ((), _EVERYTHING, True)
"""The end of a walk that leads into a masked value."""
_OUT: Final = object()
_REMOVED: Final = object()
_HIDDEN_RESULT: Final = ("", _OUT)


class Fields:
    """Keeps the members `include` (all if it is empty) except `exclude`.

    `rename` has the new last name of a path, and `masks` what replaces the values of a path.

    The `_id` always stays, since consumers could not apply the events without it. An object above an included path loses its
    other members. In an array above an included path, values other than objects become null, so that positions stay. A
    member is left out if another member is renamed to its name.

    Raises:
        ValueError: two members are renamed to one name.
    """

    def __init__(
        self,
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        rename: Mapping[str, str] | None = None,
        masks: Mapping[str, Mask] | None = None,
    ) -> None:
        included, excluded = [_path(text) for text in include], [_path(text) for text in exclude]
        masked = {_path(text): mask for text, mask in (masks or {}).items()}
        self._start = _start(included, excluded, {_path(text): name for text, name in (rename or {}).items()}, masked)
        self._unrenamed = _start(included, excluded, {}, masked)

    @property
    def is_everything(self) -> bool:
        """Whether documents stay unchanged."""
        return self._start is _EVERYTHING

    def keeps(self, path: str) -> bool:
        """Return whether any value at or below a dotted path is kept."""
        return _step(self._start, path) is not None

    def document(self, document: Any) -> Any:
        """Return the kept part of a document; None for None."""
        return None if document is None else _kept(document, self._start)

    def key(self, key: dict[str, Any]) -> dict[str, Any]:
        """Return the kept part of a document key, under MongoDB's names."""
        kept: dict[str, Any] = _kept(key, self._unrenamed)
        return kept

    def value_at(self, document: Any, names: Iterable[str]) -> Any:
        """Return the kept part of the value at a path of `document`, under MongoDB's names; None if there is no value."""
        place = self._unrenamed
        for name in names:
            step = _step(place, name)
            if step is None or not isinstance(document, dict):
                return None
            place, document = step[0], document.get(name)
        found = _kept(document, place)
        return None if found is _OUT else found

    def changed(self, changed: dict[str, Any], known: Mapping[str, list[str | int]] | None = None) -> dict[str, Any]:
        """Return the kept part of an update description.

        If an update replaces a kept value by one that is not kept, its path is listed as removed.

        Args:
            changed: ``{"updated", "removed", "truncated"}`` with MongoDB's names.
            known: MongoDB's ``disambiguatedPaths``, or None if the server does not send them.

        Returns:
            The same members. A member ``unclear`` counts paths that are left out: their two readings disagree, or they lead
            into a masked value.
        """
        kept: dict[str, Any] = {"updated": {}, "removed": [], "truncated": []}
        unclear = 0
        updated = changed["updated"]
        for path, value in (updated.as_doc() if isinstance(updated, DBRef) else updated).items():
            results = [_result(end, value) for end in self._ends(path, known)]
            unclear += _add(kept, results, None)
        for path in changed["removed"]:
            unclear += _add(kept, [_result(end, _REMOVED) for end in self._ends(path, known)], None)
        for cut in changed["truncated"]:
            unclear += _add(kept, [_result(end, _REMOVED) for end in self._ends(cut["field"], known)], cut)
        return {**kept, "unclear": unclear} if unclear else kept

    def _ends(self, path: str, known: Mapping[str, list[str | int]] | None) -> list[_End | None]:
        """Return the end of each possible reading of a path, None for a reading whose value is left out."""
        ends: dict[_End | None, None] = {((), self._start, False): None}
        for choices in _readings(path, known):
            # Only distinct ends are kept, so that a path with many positions does not multiply its readings.
            ends = dict.fromkeys(_next(end, component) for end in ends for component in choices)
        return list(ends)


def _path(text: str) -> tuple[str, ...]:
    return tuple(text.split("."))


def _start(
    included: list[tuple[str, ...]],
    excluded: list[tuple[str, ...]],
    renamed: dict[tuple[str, ...], str],
    masked: dict[tuple[str, ...], Mask],
) -> _Place:
    if not (included or excluded or renamed or masked):
        return _EVERYTHING
    top = _Rules()
    for path in [*included, ("_id",)] if included else []:
        top.at(path).is_included = True
        for length in range(len(path)):
            top.at(path[:length]).leads = True
    for path in excluded:
        top.at(path).is_excluded = True
    for path, name in renamed.items():
        top.at(path).name = name
    for path, mask in masked.items():
        top.at(path).mask = mask
    targets = [(*path[:-1], name) for path, name in renamed.items()]
    if repeated := next((target for place, target in enumerate(targets) if target in targets[:place]), None):
        raise ValueError(f"two members are renamed to {'.'.join(repeated)}; give each another name")
    for target in targets:
        rules = top.at(target)
        rules.is_taken = rules.name is None
    return top, not included


def _step(place: _Place, name: str) -> tuple[_Place, str] | None:
    """Return the place and the new name of the member `name` of an object at `place`, None to leave the member out."""
    if "." in name:
        return _steps(place, name.split("."))
    rules, is_included = place
    if rules.mask is not None:
        return place, name
    below = rules.below.get(name)
    if below is None:
        return (_EVERYTHING, name) if is_included else None
    if below.is_excluded or below.is_taken:
        return None
    is_included = is_included or below.is_included
    if not (is_included or below.leads):
        return None
    is_everything = is_included and not below.below and below.mask is None
    return _EVERYTHING if is_everything else (below, is_included), name if below.name is None else below.name


def _steps(place: _Place, names: list[str]) -> tuple[_Place, str] | None:
    written = []
    for name in names:
        step = _step(place, name)
        if step is None:
            return None
        place = step[0]
        written.append(step[1])
    return place, ".".join(written)


def _kept(value: Any, place: _Place) -> Any:
    """Return the kept part of a value at `place`; `_OUT` for a plain value that is not included."""
    if place is _EVERYTHING:
        return value
    if place[0].mask is not None:
        return place[0].mask(value) if place[1] else _OUT
    if isinstance(value, DBRef):
        # The driver makes a DBRef of every object with the members $ref and $id, whatever other members it has.
        value = value.as_doc()
    if isinstance(value, dict):
        kept = {}
        for name, member in value.items():
            step = _step(place, name)
            if step is not None and (found := _kept(member, step[0])) is not _OUT:
                kept[step[1]] = found
        return kept
    if isinstance(value, list):
        # A null in place of a removed item keeps the positions of the following items.
        return [None if (found := _kept(item, place)) is _OUT else found for item in value]
    return value if place[1] else _OUT


def _readings(path: str, known: Mapping[str, list[str | int]] | None) -> list[list[str | int]]:
    """Return the possible meanings of each component of an update's path: a name, or a position as an int."""
    if known is not None and path in known:
        return [[component] for component in known[path]]
    first, *rest = path.split(".")
    # A document is not an array, so its direct members have names.
    return [[first], *(_choices(component, is_position=known is not None) for component in rest)]


def _choices(component: str, *, is_position: bool) -> list[str | int]:
    """Return the possible meanings of a component. With `is_position`, digits can only be a position."""
    if not _POSITION.fullmatch(component):
        return [component]
    return [int(component)] if is_position else [component, int(component)]


def _next(end: _End | None, component: str | int) -> _End | None:
    if end is None or end is _HIDDEN:
        return end
    written, place, _ = end
    if isinstance(component, int):
        return (*written, str(component)), place, True
    if place[0].mask is not None:
        return _HIDDEN
    step = _step(place, component)
    return None if step is None else ((*written, step[1]), step[0], False)


def _result(end: _End | None, value: Any) -> tuple[str, Any] | None:
    """Return the written path and its kept value; None if the path is left out."""
    if end is None or end is _HIDDEN:
        return None if end is None else _HIDDEN_RESULT
    written, place, is_position = end
    found = value if value is _REMOVED else _kept(value, place)
    return ".".join(written), None if found is _OUT and is_position else found


def _add(kept: dict[str, Any], results: list[tuple[str, Any] | None], cut: dict[str, Any] | None) -> bool:
    """Add the result of a path if all its readings give the same result. Returns True if they differ."""
    first = results[0]
    if _HIDDEN_RESULT in results:
        return True
    if any(not _is_same(result, first) for result in results[1:]):
        return True
    if first is None:
        return False
    written, value = first
    if cut is not None:
        kept["truncated"].append({**cut, "field": written})
    elif value is _REMOVED or value is _OUT:
        kept["removed"].append(written)
    else:
        kept["updated"][written] = value
    return False


def _is_same(one: tuple[str, Any] | None, other: tuple[str, Any] | None) -> bool:
    if one is None or other is None:
        return one is other
    return one[0] == other[0] and (one[1] is other[1] or one[1] == other[1])
