"""Compare JSON values, for expressions over events. If two kinds of values cannot be compared, the result is false."""

from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["COMPARISONS"]


def _is_same(left: Any, right: Any) -> bool:
    """Whether two values are the same in JSON, where true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_is_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_is_same(value, right[name]) for name, value in left.items())
    return bool(left == right)


def _is_ordered(left: Any, right: Any) -> bool:
    if isinstance(left, str):
        return isinstance(right, str)
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in (left, right))


def _has(whole: Any, part: Any) -> bool:
    if isinstance(whole, str):
        return isinstance(part, str) and part in whole
    if isinstance(whole, list):
        return any(_is_same(one, part) for one in whole)
    return isinstance(whole, dict) and isinstance(part, str) and part in whole


COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": _is_same,
    "!=": lambda left, right: not _is_same(left, right),
    "<": lambda left, right: _is_ordered(left, right) and left < right,
    "<=": lambda left, right: _is_ordered(left, right) and left <= right,
    ">": lambda left, right: _is_ordered(left, right) and left > right,
    ">=": lambda left, right: _is_ordered(left, right) and left >= right,
    "in": lambda part, whole: _has(whole, part),
    "contains": _has,
    "~": _has,
}
