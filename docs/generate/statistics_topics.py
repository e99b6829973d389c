"""The members of the statistics topics, made from the schema that Spark and the dashboard share."""

from collections.abc import Iterator
from typing import Any, Final, get_args, get_origin, get_type_hints

from msgspec import Struct

from tweetwire.statistics import WINDOWS

__all__ = ["statistics_markdown"]

_HEAD: Final = "| member | type |\n| --- | --- |"
_NAMES: Final = {int: "integer", float: "number", str: "text", bool: "true or false", type(None): "null"}


def statistics_markdown() -> str:
    """Return a section for each topic, with a table of the members of its events' `msg`."""
    return "\n\n".join(
        f"### {topic}\n\n" + "\n".join([_HEAD, *(f"| `{name}` | {kind} |" for name, kind in _members(window))])
        for topic, window in WINDOWS.items()
    )


def _members(struct: type[Struct], prefix: str = "") -> Iterator[tuple[str, str]]:
    hints = get_type_hints(struct)
    for name in struct.__struct_fields__:
        kind = hints[name]
        yield f"{prefix}{name}", _written(kind)
        for nested in _structs(kind):
            dot = "[]." if get_origin(kind) is list else "."
            yield from _members(nested, f"{prefix}{name}{dot}")


def _structs(kind: Any) -> list[type[Struct]]:
    kinds = [kind, *get_args(kind)]
    return [one for one in kinds if isinstance(one, type) and issubclass(one, Struct)]


def _written(kind: Any) -> str:
    if get_origin(kind) is list:
        return f"list of {_written(get_args(kind)[0])}s"
    if parts := get_args(kind):
        # A figure may be an integer or a float. The page calls both a number.
        parts = tuple(part for part in parts if part is not int or float not in parts)
        return " or ".join(_written(part) for part in parts)
    return _NAMES.get(kind, "object")
