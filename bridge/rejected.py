"""Keep events that the other side will never accept in the topic `rejected_bridged`."""

import base64
import hashlib
from typing import Any, Final

from tweetwire import Client, Event
from tweetwire.runtime.program import logger

__all__ = ["REJECTED_TOPIC", "RejectedEvents", "rejected_producer"]

REJECTED_TOPIC: Final = "rejected_bridged"
_RAW_BYTES_MAX: Final = 512 * 1024
_NAME_MAX: Final = 128


def rejected_producer(topic: str, route: str) -> str:
    """Return the name of a route's producer in the topic of rejected events."""
    name = f"{topic}.{route}"
    return name if len(name) <= _NAME_MAX else hashlib.sha256(name.encode()).hexdigest()


class RejectedEvents:
    """Publishes the rejected events of one route.

    The checkpoint of the route's producer there is the place of the last rejected event. A crash after the publish makes the
    same event arrive again. Its place identifies it, so it is not published twice.
    """

    def __init__(self, client: Client, topic: str, route: str) -> None:
        self._client = client
        self._topic = topic
        self._route = route
        self._producer = rejected_producer(topic, route)

    async def keep(self, place: str, reason: str, raw: bytes, id_: str) -> None:
        """Keep one event. Returns once it is durable.

        Args:
            place: The offset of the event, or the engine's place of the entry.
            reason: Why the other side refuses it.
            raw: The event, or the entry's value. A long one is cut.
            id_: The event's id.
        """
        last = await self._client.last(REJECTED_TOPIC, self._producer) if await self._is_there() else None
        if last is not None and last.checkpoint == place:
            return
        logger().error("event rejected, kept", topic=REJECTED_TOPIC, route=self._route, place=place, reason=reason)
        sequence = 0 if last is None or last.sequence is None else last.sequence + 1
        event = Event(id=id_, msg=self._msg(place, reason, raw), producer=self._producer, sequence=sequence)
        event.checkpoint = place
        await self._client.publish(REJECTED_TOPIC, event)

    async def _is_there(self) -> bool:
        return any(info.topic == REJECTED_TOPIC for info in await self._client.topics())

    def _msg(self, place: str, reason: str, raw: bytes) -> dict[str, Any]:
        return {
            "topic": self._topic,
            "route": self._route,
            "place": place,
            "reason": reason,
            "bytes": len(raw),
            "raw": base64.b64encode(raw[:_RAW_BYTES_MAX]).decode(),
        }
