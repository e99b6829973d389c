"""The members of a stored event: their names, and the value at a path such as ``msg.items[0].name``."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET

__all__ = ["EVENT_MEMBERS", "member_of"]

EVENT_MEMBERS: Final = (
    *("topic", "offset", "timestamp", "id", "priority", "msg", "key", "parent", "headers"),
    *("producer", "sequence", "checkpoint"),
)


def member_of(event: Mapping[str, Any], path: Sequence[str | int]) -> Any:
    """Return the value at a path of names and indexes, or UNSET if the event has no such value."""
    value: Any = event
    for step in path:
        if isinstance(step, int):
            if not isinstance(value, list) or not -len(value) <= step < len(value):
                return UNSET
            value = value[step]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return UNSET
    return value
