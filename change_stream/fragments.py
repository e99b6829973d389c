"""Join changes above 16 MiB, which MongoDB 6.0.9 and later send in fragments."""

from typing import Any

__all__ = ["Fragments"]


class Fragments:
    """Joins the fragments of a change, which arrive in order and have no member in common.

    Each fragment has a resume token. The joined change carries the token of the last fragment, so that a resume record never
    points between fragments: after a crash, all of them are read again.
    """

    def __init__(self) -> None:
        self._joined: dict[str, Any] = {}

    @property
    def is_open(self) -> bool:
        """Whether some fragments have arrived, but not the last one."""
        return bool(self._joined)

    def add(self, piece: dict[str, Any]) -> dict[str, Any] | None:
        """Take a fragment. Return the joined change for the last fragment, else None."""
        split = piece.pop("splitEvent")
        if split["fragment"] == 1:
            self._joined = {}
        self._joined.update(piece)
        if split["fragment"] < split["of"]:
            return None
        whole, self._joined = self._joined, {}
        return whole
