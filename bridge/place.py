"""The checkpoint of a route inwards, as the broker stores it in the write of each event. No I/O."""

import re
from typing import Final

from msgspec import Struct

__all__ = ["Place"]

_PLACE: Final = re.compile(r"(\S+) (\S+)( ~)?(?: #(\d{1,19}))?")


class Place(Struct, frozen=True):
    """The checkpoint of a route inwards: the identity of the stream, and the place of the newest entry that was taken.

    Attributes:
        is_exact: Whether the stream should have the entry at the place. After a gap event, it is known to be removed.
        sequence: Of a place that was only seen: the sequence of the newest event at that time.
    """

    centre: str
    place: str
    is_exact: bool = True
    sequence: int | None = None

    @staticmethod
    def parse(text: str) -> "Place":
        """Return the place of a checkpoint. Raises ValueError if this program did not write it."""
        found = _PLACE.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r:.80} is not a place")
        centre, place, mark, sequence = found.groups()
        return Place(centre, place, not mark, int(sequence) if sequence else None)

    def text(self) -> str:
        """Return the place as a checkpoint."""
        sequence = "" if self.sequence is None else f" #{self.sequence}"
        return f"{self.centre} {self.place or '-'}{'' if self.is_exact else ' ~'}{sequence}"
