"""The ``name=value`` words and flags at the end of a command."""

from broker.errors import Refusal

__all__ = ["Options"]


class Options:
    """Takes each option once; `end` refuses what nobody took, so that a typing error is not lost in silence."""

    def __init__(self, words: list[str]) -> None:
        self._values: dict[str, str | None] = {}
        for word in words:
            name, equals, value = word.partition("=")
            if name.lower() in self._values:
                raise Refusal("bad_arguments", f"{name} is given twice")
            self._values[name.lower()] = value if equals else None

    def text(self, name: str) -> str | None:
        """Return the option's value, None where it is not given."""
        if name not in self._values:
            return None
        value = self._values.pop(name)
        if not value:
            raise Refusal("bad_arguments", f"{name} needs a value: {name}=...")
        return value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return the option as a whole number within least…most."""
        text = self.text(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most):
            raise Refusal("bad_arguments", f"{name} is a whole number from {least} to {most}")
        return int(text)

    def flag(self, name: str) -> bool:
        """Return whether the bare word is there."""
        if name not in self._values:
            return False
        if self._values.pop(name) is not None:
            raise Refusal("bad_arguments", f"{name} takes no value")
        return True

    def end(self) -> None:
        """Refuse what is left."""
        for name in self._values:
            raise Refusal("bad_arguments", f"unknown option {name[:40]!r}")
