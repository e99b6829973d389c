"""Find events of a repeated batch that the broker takes for duplicates, although it refused them at an earlier try.

The broker stores no event of a producer after a refused sequence, but versions before November 2026 did. With these, the
refused event's sequence is below its producer's last one. Once the broker has forgotten the refusal, it takes the event for a
duplicate. The topic shows which events are stored. Missing events can be published under another producer's name, one by one.
Under that name, no event is sent after a refused one, so each duplicate is really stored.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from spark.connector.link import chunks_back
from tweetwire import Event, SyncClient

__all__ = ["left_out"]


class _Line(Struct):
    producer: str | None = None
    sequence: int = -1


_decode = msgspec.json.Decoder(_Line).decode


def left_out(client: SyncClient, topic: str, events: Sequence[Event], producer: str) -> list[Event]:
    """Return the `events` of a batch that the topic lacks although they count as duplicates.

    Events older than the oldest one that is still in the topic may have been removed by retention; they count as stored.
    """
    by_sequence = {event.sequence: event for event in events if isinstance(event.sequence, int)}
    first, oldest = min(by_sequence), max(by_sequence)
    stored: set[int] = set()
    for start, chunks in chunks_back(client, topic):
        found = {line.sequence for lines in chunks for line in map(_decode, lines) if line.producer == producer}
        stored |= found
        # A topic that still has its first offset has lost no events.
        oldest = min({oldest, *found}) if start else -1
        if oldest < first:
            break
    return [event for sequence, event in by_sequence.items() if sequence > oldest and sequence not in stored]
