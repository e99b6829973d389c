"""Move the mark of a route while it appends: one mark command at a time, each with the newest offset."""

import anyio
from msgspec import structs

from bridge.local import LocalTopic
from bridge.opening import MarkNote
from tweetwire import BrokerError

__all__ = ["Marking"]

_EXCEPTED_MAX = 500


class Marking:
    """The mark of one session.

    Attributes:
        excepted: The offsets that were rejected, and are not yet part of a stored mark.
        failure: The error that ended `run`.
    """

    def __init__(self, local: LocalTopic, mark: int, note: MarkNote) -> None:
        self.excepted: list[int] = []
        self.failure: BrokerError | None = None
        self._local = local
        self._mark = mark
        self._note = note
        self._stored: MarkNote | None = None
        self._has_changed = anyio.Event()

    def note_written(self, offset: int) -> None:
        """Note that the engine has our event `offset`, and all before it that had to be sent."""
        self._note = structs.replace(self._note, position=offset, through=offset)
        self._has_changed.set()

    def note_through(self, offset: int) -> None:
        """Note that nothing is left to do for the events up to `offset`."""
        if offset != self._note.through:
            self._note = structs.replace(self._note, through=offset)
            self._has_changed.set()

    async def store(self) -> None:
        """Store the mark as it is now. Raises BrokerError."""
        note, excepted = self._note, self.excepted[:_EXCEPTED_MAX]
        if note == self._stored and not excepted:
            return
        # While events are sent again, the mark does not move, since it can only grow.
        mark = max(self._mark, note.through + 1)
        await self._local.set_mark(mark, note, [one for one in excepted if one < mark])
        self._mark = mark
        self._stored = note
        del self.excepted[: len(excepted)]

    async def run(self) -> None:
        """Store the mark whenever it has changed, until cancelled or until the broker fails."""
        try:
            while True:
                await self._has_changed.wait()
                self._has_changed = anyio.Event()
                await self.store()
        except BrokerError as error:
            self.failure = error
