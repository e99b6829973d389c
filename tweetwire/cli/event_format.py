"""The template of ``--format``: ``{offset} {key} {msg.total}``, with a member of the event in each pair of braces."""

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from tweetwire.cli.display import printable
from tweetwire.cli.where import read_member
from tweetwire.protocol.errors import StartError

__all__ = ["read_format"]

_PART: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
_DOUBLED: Final = {"{{": "{", "}}": "}"}


def read_format(text: str) -> Callable[[bytes], str]:
    """Read a template. Returns a function from a stored event to its text.

    A member that the event does not have becomes an empty text. Texts are shown without quotes, other values as JSON.
    Double braces stand for a brace. Raises StartError.
    """
    parts: list[Callable[[Any], str]] = []
    for found in _PART.finditer(text):
        if found[0] in {"{", "}"}:
            raise StartError(
                f"--format: the brace at character {found.start() + 1} has no partner; write {found[0] * 2}"
            )
        if found[1] is None:
            parts.append(_constant(_DOUBLED.get(found[0], found[0])))
        else:
            parts.append(_shown(read_member(found[1], "--format")))
    return lambda line: "".join(part(event) for event in [msgspec.json.decode(line)] for part in parts)


def _constant(text: str) -> Callable[[Any], str]:
    return lambda _: text


def _shown(member: Callable[[Any], Any]) -> Callable[[Any], str]:
    def shown(event: Any) -> str:
        value = member(event)
        if value is UNSET:
            return ""
        return printable(value if isinstance(value, str) else msgspec.json.encode(value).decode())

    return shown
