"""The options at the end of a line: ``name=value`` words and flags."""

import re
from collections.abc import Set as AbstractSet
from typing import Final

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.words import whole_number

__all__ = ["LIMIT_MAX", "Options", "take_options"]

LIMIT_MAX: Final = 100_000
"""The largest ``limit`` of a command that reads or reports."""

_OPTION: Final = re.compile(rb"([A-Za-z_]+)=\S*\s+")


def take_options(raw: bytes, names: AbstractSet[bytes]) -> tuple[bytes, bytes]:
    """Take the options with these names out of those before an event. Return them, and the rest of the line."""
    found: list[bytes] = []
    kept: list[bytes] = []
    at = 0
    while (option := _OPTION.match(raw, at)) is not None:
        (found if option[1].lower() in names else kept).append(option[0])
        at = option.end()
    return (b"".join(found), b"".join(kept) + raw[at:]) if found else (b"", raw)


class Options:
    """The options of one line. Each option is taken out once. `end` refuses the rest, so that a typing error is reported.

    Every method raises Refusal ``bad_arguments``.
    """

    def __init__(self, words: list[str]) -> None:
        self._values: dict[str, str | None] = {}
        for word in words:
            name, equals, value = word.partition("=")
            if name.lower() in self._values:
                raise Refusal("bad_arguments", f"{name} is given twice")
            self._values[name.lower()] = value if equals else None

    def text(self, name: str) -> str | None:
        """Take an option and return its value, or None if it is not given."""
        if name not in self._values:
            return None
        value = self._values.pop(name)
        if not value:
            raise Refusal("bad_arguments", f"{name} needs a value: {name}=...")
        return value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Take an option and return it as a whole number from `least` to `most`."""
        text = self.text(name)
        if text is None:
            return default
        number = whole_number(text, most)
        if number is None or number < least:
            raise Refusal("bad_arguments", f"{name} is a whole number from {least} to {most}")
        return number

    def flag(self, name: str) -> bool:
        """Take a flag and return whether it is given."""
        if name not in self._values:
            return False
        if self._values.pop(name) is not None:
            raise Refusal("bad_arguments", f"{name} takes no value")
        return True

    def end(self) -> None:
        """Refuse the first option that was not taken."""
        for name in self._values:
            raise Refusal("bad_arguments", f"unknown option {name[:40]!r}")
