"""Changes above 16 MiB, which MongoDB 6.0.9 and later sends in pieces."""

from typing import Any

__all__ = ["Fragments"]


class Fragments:
    """Joins the pieces of a change; they follow each other in the stream, each with members that no other has.

    Every piece has a token of its own. The joined change carries the last one's, so that a record never points between
    pieces: after a crash all of them are read again.
    """

    def __init__(self) -> None:
        self._joined: dict[str, Any] = {}

    @property
    def is_open(self) -> bool:
        """Whether pieces have come whose last one has not."""
        return bool(self._joined)

    def add(self, piece: dict[str, Any]) -> dict[str, Any] | None:
        """Take a piece; returns the whole change with the last one."""
        split = piece.pop("splitEvent")
        if split["fragment"] == 1:
            self._joined = {}
        self._joined.update(piece)
        if split["fragment"] < split["of"]:
            return None
        whole, self._joined = self._joined, {}
        return whole
