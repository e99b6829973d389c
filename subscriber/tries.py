"""What became of each try at handling an event, kept in a topic for analysis.

Tries are published in groups, a few times a second, so that the history costs a small part of what it tells of; the newest
ones are lost with a process that is killed. One that the broker does not take is dropped and counted: history never holds
up the work.
"""

from collections.abc import Sequence
from typing import Final, Literal

import anyio
import msgspec
from msgspec import Struct

from broker import Client, Event, Refusal, StoredEvent
from broker.program import logger

__all__ = ["HISTORY", "Try", "TryLog", "tries_of"]

HISTORY: Final = "handler_history"
KEEP_EVERY_S: Final = 0.25
GROUP_MAX: Final = 500
WAITING_MAX: Final = 20_000
LAST_S: Final = 5.0


class Try(Struct, omit_defaults=True, kw_only=True):
    """One try: `at` is when it ended (ms since 1970), `seconds` how long the handler took; `error` its type, if it failed."""

    topic: str
    subscription: str
    offset: int
    id: str
    attempt: int
    at: int
    seconds: float
    outcome: Literal["handled", "failed"]
    error: str | None = None
    message: str | None = None


class TryLog:
    """Collects tries and publishes them over `client`."""

    def __init__(self, client: Client, topic: str) -> None:
        self.dropped = 0
        self._client = client
        self._topic = topic
        self._waiting: list[Try] = []

    def note(self, one: Try) -> None:
        """Keep a try."""
        if len(self._waiting) >= WAITING_MAX:
            self.dropped += 1
        else:
            self._waiting.append(one)

    async def run(self) -> None:
        """Publish what is noted, for ever."""
        while True:
            await anyio.sleep(KEEP_EVERY_S)
            await self._publish()

    async def close(self) -> None:
        """Publish the rest, if there is time."""
        with anyio.move_on_after(LAST_S, shield=True):
            await self._publish()
        if self.dropped or self._waiting:
            logger().warning("part of the history is lost", tries=self.dropped + len(self._waiting))

    async def _publish(self) -> None:
        while self._waiting:
            group = self._waiting[:GROUP_MAX]
            last = group[-1]
            try:
                await self._client.publish(
                    self._topic, Event(id=f"{last.topic}@{last.offset}", key=last.subscription, msg=group)
                )
            except Refusal as refusal:
                self.dropped += len(group)
                logger().warning("the broker does not keep the history", reason=str(refusal))
            del self._waiting[: len(group)]


def tries_of(event: StoredEvent) -> Sequence[Try]:
    """Return the tries that an event of the history tells of; none where it is something else."""
    try:
        return event.decode(list[Try])
    except msgspec.MsgspecError:
        return []
