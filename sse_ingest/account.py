"""Count what happens to each event that is read from a source.

Always true for each source: events read + tweets found inside other tweets = stored + already there + notices + rejected + in
flight. After an orderly end, nothing is in flight.
"""

from collections import Counter
from typing import Any

from msgspec import Struct, field

from sse_ingest.progress import Progress

__all__ = ["SourceAccount"]

NAMES_MAX = 100
NAME_CHARACTERS_MAX = 100


class SourceAccount(Struct):
    """Counters of one source since the start, and its progress.

    `read` counts events, `nested` counts tweets that were inside other tweets.
    """

    read: int = 0
    nested: int = 0
    stored: int = 0
    already_there: int = 0
    notices: int = 0
    rejected: int = 0
    notices_by_name: Counter[str] = field(default_factory=Counter)
    progress: Progress = field(default_factory=Progress)

    @property
    def in_flight(self) -> int:
        """The number of tweets and events that were read and are not settled yet."""
        return self.read + self.nested - self.stored - self.already_there - self.notices - self.rejected

    def note(self, name: str) -> None:
        """Count a notice. A server may invent any number of names, so names beyond the first `NAMES_MAX` count as "other"."""
        self.notices += 1
        name = name[:NAME_CHARACTERS_MAX]
        is_known = name in self.notices_by_name or len(self.notices_by_name) < NAMES_MAX
        self.notices_by_name[name if is_known else "other"] += 1

    def summary(self) -> dict[str, Any]:
        """Return the counters by name, for logs and people."""
        return {
            "read": self.read,
            "nested": self.nested,
            "stored": self.stored,
            "already_there": self.already_there,
            "notices": self.notices,
            "rejected": self.rejected,
            "in_flight": self.in_flight,
        }
