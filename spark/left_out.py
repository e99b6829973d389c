"""Events of a repeated batch that count as duplicates, but were refused at an earlier try.

Events are sent behind each other, so those behind a refused one are stored, and its own sequence is below its producer's
last. The topic tells which are stored. What is missing there may go by another producer's name, one by one: behind one that
is refused again none is sent, so for that name a duplicate is stored for certain.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from broker import Event, SyncClient
from spark.link import chunks_back

__all__ = ["left_out"]


class _Line(Struct):
    producer: str | None = None
    sequence: int = -1


_decode = msgspec.json.Decoder(_Line).decode


def left_out(client: SyncClient, topic: str, events: Sequence[Event], producer: str) -> list[Event]:
    """Give those of a batch's `events` that the topic does not hold, though it holds one of `producer` before them, or all.

    What would lie before the oldest one that is still there may have been removed by retention, and is taken to be stored.
    """
    by_sequence = {event.sequence: event for event in events if isinstance(event.sequence, int)}
    first, oldest = min(by_sequence), max(by_sequence)
    stored: set[int] = set()
    for start, chunks in chunks_back(client, topic):
        found = {line.sequence for lines in chunks for line in map(_decode, lines) if line.producer == producer}
        stored |= found
        # From its first offset on, a topic has lost nothing.
        oldest = min({oldest, *found}) if start else -1
        if oldest < first:
            break
    return [event for sequence, event in by_sequence.items() if sequence > oldest and sequence not in stored]
