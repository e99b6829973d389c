"""Changes that cannot become events, kept raw with their token in a topic of their own."""

import base64
from typing import Any

from bson.raw_bson import RawBSONDocument

from broker import Client, Event
from broker.program import logger
from change_stream.convert import Unconvertible, document_id
from change_stream.position_store import PositionStore

__all__ = ["REJECTED_TOPIC", "Rejected"]

REJECTED_TOPIC = "rejected_changes"
_RAW_BYTES_MAX = 512 * 1024


class Rejected:
    """Publishes what `producer` could not convert, each change once also when it is read again after a crash.

    The checkpoint of a rejected change is its token. Tokens of one stream sort as their text, so what lies at or before the
    last one has been kept already.
    """

    def __init__(self, client: Client, producer: str, topic: str) -> None:
        self._store = PositionStore(client, REJECTED_TOPIC, producer)
        self._topic = topic
        self._sequence: int | None = None
        self._through = ""
        self.count = 0

    async def keep(self, raw: RawBSONDocument, token: str, error: Unconvertible) -> None:
        """Keep one change, unless that was done before; returns when it is durable."""
        if self._sequence is None:
            await self._load()
        if token <= self._through:
            return
        self._sequence = (self._sequence or 0) + 1
        logger().error("a change cannot be converted, it is kept", topic=REJECTED_TOPIC, reason=str(error), token=token)
        await self._store.publish(
            Event(
                id=document_id(token),
                msg=self._msg(bytes(raw.raw), token, str(error)),
                producer=self._store.producer,
                sequence=self._sequence,
                checkpoint=token,
            )
        )
        self._through = token
        self.count += 1

    async def _load(self) -> None:
        last = await self._store.load()
        self._sequence = 0 if last is None else last.sequence or 0
        self._through = "" if last is None else last.checkpoint or ""

    def _msg(self, raw: bytes, token: str, reason: str) -> dict[str, Any]:
        return {
            "topic": self._topic,
            "producer": self._store.producer,
            "token": token,
            "reason": reason,
            "bytes": len(raw),
            "raw": base64.b64encode(raw[:_RAW_BYTES_MAX]).decode(),
        }
