"""One topic of our broker as a route outwards needs it: its ends, its log, and the route's mark."""

from typing import Any

from msgspec import Struct

from bridge.central import PositionMoved
from bridge.opening import MarkNote
from tweetwire import Client, Page
from tweetwire.protocol.errors import StartError

__all__ = ["LocalTopic", "RouteMark"]


class RouteMark(Struct, frozen=True):
    """The mark of a route: every event before `offset` is done. Without a mark, the offset is 0 and there is no note."""

    offset: int = 0
    note: MarkNote | None = None


class LocalTopic:
    """Sends the commands of one topic and one mark."""

    def __init__(self, client: Client, reader: Client, topic: str, mark: str) -> None:
        self._client = client
        self._reader = reader
        self._opened = ""
        self._log: str | None = None
        self.topic = topic
        self._mark = mark

    def identity(self) -> str:
        """Return the identity of the broker. Until the next call, `read` refuses a broker with another one."""
        found = self._client.broker_identity
        if found is None:
            raise StartError("the broker has no identity; the bridge needs a newer one")
        self._opened = found
        return found

    async def log(self) -> str:
        """Return the id of the log, "" if the broker shows none. Until the next call, another log is refused."""
        found = str((await self._figures()).get("log", ""))
        self._log = found or None
        return found

    async def ends(self) -> tuple[int, int]:
        """Return the first offset of the log, and the offset that the next event will have.

        Raises:
            PositionMoved: The topic has another log than before.
        """
        figures = await self._figures()
        if self._log is not None and figures.get("log") != self._log:
            raise PositionMoved(f"the topic {self.topic} was dropped and made again")
        return int(figures["earliest"]), int(figures["next"])

    async def mark(self) -> RouteMark:
        """Return the route's mark."""
        for mark in await self._client.marks(self.topic):
            if mark.name == self._mark:
                return RouteMark(mark.offset, MarkNote.parse(mark.checkpoint))
        return RouteMark()

    async def set_mark(self, offset: int, note: MarkNote, excepted: list[int]) -> None:
        """Move the mark, or change its note. Returns once the change is on the broker's disk."""
        await self._client.mark(
            self.topic, self._mark, offset, excepted=excepted, checkpoint=note.text(), log=self._log
        )

    async def unmark(self) -> None:
        """Delete the mark."""
        await self._client.unmark(self.topic, self._mark)

    async def read(self, offset: int, *, limit: int, bytes_max: int, wait_s: float) -> Page:
        """Read events from the log, and wait for one if there is none yet.

        Raises:
            PositionMoved: The log is another one than when the route was opened.
            Refusal: The topic was dropped and made again.
        """
        page = await self._reader.read(
            self.topic, offset, limit=limit, bytes_max=bytes_max, wait_s=wait_s, log=self._log
        )
        if self._reader.broker_identity != self._opened:
            raise PositionMoved("the broker has another data folder than before")
        if page.next < offset:
            raise PositionMoved(f"the topic {self.topic} is shorter than before")
        return page

    async def _figures(self) -> dict[str, Any]:
        figures: dict[str, Any] = (await self._client.stats(self.topic))["topics"][self.topic]
        return figures
