"""Read the user's aggregation stages and queries from files. Refuse stages that remove what the program needs of a change."""

from pathlib import Path
from typing import Any, Final

from bson import json_util

__all__ = ["NEEDED", "read_query", "read_stages"]

NEEDED: Final = ("_id", "clusterTime", "operationType", "documentKey", "ns")
"""The members of a change that the program needs: its position, its time, its kind, and whose change it is."""

_WHOLE: Final = "$$ROOT"


def read_stages(file: Path) -> list[dict[str, Any]]:
    """Read a pipeline, a JSON array of stages. Raises ValueError, also for a stage that removes or changes a needed member."""
    stages = _read(file)
    if not isinstance(stages, list) or not all(isinstance(stage, dict) and len(stage) == 1 for stage in stages):
        raise ValueError("a pipeline is a JSON array of stages, each an object with one member")
    for stage in stages:
        name, spec = next(iter(stage.items()))
        for member in NEEDED:
            if _loses(name, spec, member):
                raise ValueError(
                    f"{file}: the stage {name} removes or changes {member}, which the program needs of each change; "
                    "leave that member as it is"
                )
    return stages


def read_query(file: Path) -> dict[str, Any]:
    """Read a query, a JSON object. Raises ValueError."""
    query = _read(file)
    if not isinstance(query, dict):
        raise ValueError(f"{file} is not a query: write a JSON object, such as {{}} for all documents")
    return query


def _read(file: Path) -> Any:
    try:
        return json_util.loads(file.read_text())
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from error


def _loses(name: str, spec: Any, member: str) -> bool:
    """Return whether a stage removes or changes a member. Stages whose effect depends on the data count as harmless."""
    match name:
        case "$unset":
            return any(_touches(path, member) for path in ([spec] if isinstance(spec, str) else spec))
        case "$set" | "$addFields":
            return isinstance(spec, dict) and any(_touches(path, member) for path in spec)
        case "$project":
            return isinstance(spec, dict) and _projects_away(spec, member)
        case "$replaceWith":
            return _replaces(spec, member)
        case "$replaceRoot":
            return _replaces(spec.get("newRoot") if isinstance(spec, dict) else spec, member)
        case _:
            return False


def _touches(path: Any, member: str) -> bool:
    return path == member or str(path).startswith(f"{member}.")


def _projects_away(spec: dict[str, Any], member: str) -> bool:
    if member in spec:
        return not _is_kept(spec[member])
    paths = {path: value for path, value in spec.items() if _touches(path, member)}
    if paths:
        return not all(_is_kept(value) for value in paths.values())
    includes = any(path != "_id" and (not _is_number(value) or value) for path, value in spec.items())
    return includes and member != "_id"


def _is_kept(value: Any) -> bool:
    # Any other value than a number or true is an expression, which changes the member.
    return _is_number(value) and bool(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float)


def _replaces(root: Any, member: str) -> bool:
    if root == _WHOLE:
        return False
    parts = root.get("$mergeObjects") if isinstance(root, dict) else None
    if not isinstance(parts, list) or not parts or parts[0] != _WHOLE:
        return True
    return any(not isinstance(part, dict) or any(_touches(path, member) for path in part) for part in parts[1:])
