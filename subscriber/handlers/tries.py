"""The history: the outcome of each try at handling an event, kept in a topic for analysis.

Tries are published in groups, a few times a second, so that the history takes little time. When the process is killed, its
newest tries are lost. Tries that the broker refuses are dropped and counted: the history never delays the work.
"""

from collections.abc import Sequence
from typing import Final, Literal

import anyio
import msgspec
from msgspec import Struct

from tweetwire import Client, Event, Refusal, StoredEvent
from tweetwire.runtime.program import logger

__all__ = ["HISTORY", "Try", "TryLog", "tries_of"]

HISTORY: Final = "handler_history"
KEEP_EVERY_S: Final = 0.25
GROUP_MAX: Final = 500
WAITING_MAX: Final = 20_000
LAST_S: Final = 5.0


class Try(Struct, omit_defaults=True, kw_only=True):
    """One try: `at` is its end (ms since 1970), `seconds` the handler's time; `error` is the error's type if it failed."""

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
        self._reason = ""

    def note(self, one: Try) -> None:
        """Add a try to the next group, or count it as dropped if too many wait."""
        if len(self._waiting) >= WAITING_MAX:
            self.dropped += 1
        else:
            self._waiting.append(one)

    async def run(self) -> None:
        """Publish the collected tries until cancelled."""
        while True:
            await anyio.sleep(KEEP_EVERY_S)
            await self._publish()

    async def close(self) -> None:
        """Publish the remaining tries within `LAST_S` seconds."""
        with anyio.move_on_after(LAST_S, shield=True):
            await self._publish()
        if self.dropped or self._waiting:
            logger().warning("part of the history was lost", tries=self.dropped + len(self._waiting))

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
                # The same refusal may come a few times a second, so it is logged only if the previous one had another reason.
                if self._reason != (reason := str(refusal)):
                    self._reason = reason
                    logger().warning("broker refused the history", reason=reason)
            del self._waiting[: len(group)]


def tries_of(event: StoredEvent) -> Sequence[Try]:
    """Return the tries in an event of the history; an empty sequence for an event of another form."""
    try:
        return event.decode(list[Try])
    except msgspec.MsgspecError:
        return []
