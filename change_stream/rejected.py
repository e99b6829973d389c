"""Keep changes that cannot become events in a separate topic, as raw BSON or its digest, with their token."""

import base64
import hashlib
from typing import Any

from change_stream.convert import Unconvertible, document_id
from change_stream.position_store import PositionStore
from tweetwire import Client, Event
from tweetwire.runtime.program import logger

__all__ = ["REJECTED_TOPIC", "RejectedChanges"]

REJECTED_TOPIC = "rejected_changes"
_RAW_BYTES_MAX = 512 * 1024


class RejectedChanges:
    """Publishes the changes of `topic` that could not be converted to the topic of rejected changes.

    The checkpoint there is the resume record after the rejected change. After that, the caller moves the checkpoint of `topic`.
    If a crash happens between the two, the same change arrives again. That record identifies it, so it is not published twice.

    This topic needs no claim. A publisher that has lost its claim on `topic` may still keep one change here. The new leader
    keeps the same change with the same sequence, which is then a duplicate.
    """

    def __init__(self, client: Client, producer: str, topic: str, *, keeps_raw: bool = True) -> None:
        self._store = PositionStore(client, REJECTED_TOPIC, producer)
        self._topic = topic
        self._keeps_raw = keeps_raw
        self._sequence: int | None = None
        self._last = ""
        self.count = 0

    def begin_session(self) -> None:
        """Forget the position in the topic of rejected changes, since another publisher may have moved it."""
        self._sequence = None

    async def keep(self, error: Unconvertible, text: str) -> None:
        """Keep one change, with the resume record after it in `text`. Return once the change is durable."""
        if self._sequence is None:
            last = await self._store.load()
            self._sequence = 0 if last is None else last.sequence or 0
            self._last = "" if last is None else last.checkpoint or ""
        if text == self._last:
            return
        logger().error("change could not be converted, kept", topic=REJECTED_TOPIC, reason=str(error), behind=text)
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
            "bytes": error.size,
            "sha256": hashlib.sha256(error.raw).hexdigest() if error.raw else None,
            "raw": base64.b64encode(error.raw[:_RAW_BYTES_MAX]).decode() if self._keeps_raw else None,
        }
