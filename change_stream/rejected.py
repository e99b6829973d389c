"""Changes that cannot become events, kept raw with their token in a topic of their own."""

import base64
from typing import Any

from broker import Client, Event
from broker.program import logger
from change_stream.convert import Unconvertible, document_id
from change_stream.position_store import PositionStore

__all__ = ["REJECTED_TOPIC", "Rejected"]

REJECTED_TOPIC = "rejected_changes"
_RAW_BYTES_MAX = 512 * 1024


class Rejected:
    """Publishes what the producer of `topic` could not convert.

    Its checkpoint there is the record behind the rejected change. The caller moves the topic's own checkpoint next; a crash
    between the two lets the same change come again, and it is known by that record.
    """

    def __init__(self, client: Client, producer: str, topic: str) -> None:
        self._store = PositionStore(client, REJECTED_TOPIC, producer)
        self._topic = topic
        self._sequence: int | None = None
        self._last = ""
        self.count = 0

    async def keep(self, error: Unconvertible, text: str) -> None:
        """Keep one change, `text` being the record behind it; returns when it is durable."""
        if self._sequence is None:
            last = await self._store.load()
            self._sequence = 0 if last is None else last.sequence or 0
            self._last = "" if last is None else last.checkpoint or ""
        if text == self._last:
            return
        logger().error("a change cannot be converted and is kept", topic=REJECTED_TOPIC, reason=str(error), behind=text)
        self._sequence += 1
        await self._store.publish(
            Event(
                id=document_id(text),
                msg=self._msg(error, text),
                producer=self._store.producer,
                sequence=self._sequence,
                checkpoint=text,
            )
        )
        self._last = text
        self.count += 1

    def _msg(self, error: Unconvertible, text: str) -> dict[str, Any]:
        return {
            "topic": self._topic,
            "producer": self._store.producer,
            "behind": text,
            "reason": str(error),
            "bytes": len(error.raw),
            "raw": base64.b64encode(error.raw[:_RAW_BYTES_MAX]).decode(),
        }
