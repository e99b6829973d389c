"""Find the documents that a topic still has although a copy did not find them, so that their deletes can be published.

A second copy of a collection follows a time whose changes are unknown, or publishes again what the topic has. A document that
was deleted in that time, or before the copy reached it, has no delete in the topic. Its last event there is older than the
beginning of the copy, and no later event is about it. So the topic itself shows these documents, also after an interrupted
copy.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from change_stream.position_store import until_done
from tweetwire import Client, StoredEvent
from tweetwire.protocol.replies import Page
from tweetwire.protocol.requests import Start
from tweetwire.runtime.program import logger

__all__ = ["vanished_documents"]

_PAGE_EVENTS = 1000
_PAGE_BYTES = 4 << 20
_LIVES = frozenset({"insert", "update", "replace", "snapshot"})


class _Message(Struct):
    op: str
    document_key: dict[str, Any] | UnsetType = UNSET


_decode = msgspec.json.Decoder(_Message).decode


async def vanished_documents(client: Client, topic: str, producer: str, copy_id: int) -> list[StoredEvent]:
    """Return the last event of each document that the copy did not find, in the order of these events.

    All events of the copy must be stored. The memory is about 200 bytes for each document that the topic had before the copy.
    In a sharded collection, a copy and a change may identify a document differently, so nothing is returned for it.

    Args:
        client: a client that may read the topic.
        topic: the topic of the collection.
        producer: the producer of the collection's events.
        copy_id: the sequence of the event ``snapshot_begin`` of the copy.
    """
    if copy_id <= 1:
        return []
    live: dict[str, int] = {}
    offset: Start = "earliest"
    while True:
        page = await _read(client, topic, offset, _PAGE_EVENTS)
        for event in page.events:
            if event.producer == producer and not _note(event, live, copy_id):
                logger().warning("cannot compare a sharded collection with its topic", topic=topic)
                return []
        if not page.events:
            break
        offset = page.next
    found: list[StoredEvent] = []
    for place in sorted(live.values()):
        page = await _read(client, topic, place, 1)
        found += [event for event in page.events if event.offset == place]
    return found


async def _read(client: Client, topic: str, offset: Start, limit: int) -> Page:
    return await until_done(lambda: client.read(topic, offset, limit=limit, bytes_max=_PAGE_BYTES))


def _note(event: StoredEvent, live: dict[str, int], copy_id: int) -> bool:
    """Note an event in `live`, the offset of the last event of each document. Return False for a sharded collection."""
    message = _decode(bytes(event.msg))
    if message.document_key is not UNSET and len(message.document_key) > 1:
        return False
    if event.sequence is UNSET or event.sequence >= copy_id:
        if message.op in _LIVES or message.op == "delete":
            live.pop(event.id, None)
    elif message.op in _LIVES:
        live[event.id] = event.offset
    elif message.op == "delete":
        live.pop(event.id, None)
    elif message.op == "drop":
        live.clear()
    return True
