"""Count the events of one topic that the broker confirmed, and the changes that it refused while it stored later ones."""

from typing import NamedTuple

from change_stream.resume import StreamPosition
from tweetwire import Receipt, Refusal

__all__ = ["Confirmations", "RefusedChanges"]


class RefusedChanges(NamedTuple):
    """The number of changes that are missing after a position, and the refusal that explains them."""

    changes: int
    position: StreamPosition
    refusal: Refusal


class _SessionStart(NamedTuple):
    """The start of a session: the producer's last sequence, the number of events stored before it, and the position."""

    sequence: int
    stored: int
    position: StreamPosition


class Confirmations:
    """Counts the events of one topic that the broker confirmed.

    `count` is their number, `duplicates` the number of those that the broker had already. `refusal` is the refusal that
    ended the last session, if the broker refused an event.
    """

    def __init__(self) -> None:
        self.count = 0
        self.duplicates = 0
        self.refusal: Refusal | None = None
        self._start: _SessionStart | None = None

    def note_receipt(self, receipt: Receipt) -> None:
        """Count the events that a receipt confirms. Events that were sent again on a new connection may be duplicates."""
        self.count += receipt.count
        self.duplicates += receipt.is_duplicate

    def take_refused_changes(self, sequence: int, position: StreamPosition) -> RefusedChanges | None:
        """Return the changes that the broker refused in the last session while it stored later ones, as older versions do.

        The next session begins at `sequence` and `position`.
        """
        stored = self.count - self.duplicates
        start, self._start = self._start, _SessionStart(sequence, stored, position)
        refusal, self.refusal = self.refusal, None
        if start is None or refusal is None:
            return None
        missing = (sequence - start.sequence) - (stored - start.stored)
        return RefusedChanges(missing, start.position, refusal) if missing > 0 else None
