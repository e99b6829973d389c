"""The two programs of the exactly-once test: ``python -m tests.broker.handshaking publish|consume ADDRESS FOLDER COUNT``.

Each writes a line to its file, synced, for what the library has told it: that a message is stored, or that one is handed
over. Killed and started again, it goes on from that file.
"""

import os
import sys
from pathlib import Path

import anyio

from broker import Client, Event, StoredEvent

TOPIC, SUBSCRIPTION = "t", "s"
# A broker that is started on a busy machine takes its time, and five of these must be longer than several starts.
ANSWER_S = 60.0


class Notes:
    """A file of words that outlive the process."""

    def __init__(self, path: Path) -> None:
        self.words = path.read_text().split() if path.exists() else []
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, word: str) -> None:
        self.words.append(word)
        os.write(self._file, f"{word}\n".encode())
        os.fsync(self._file)


async def publish(address: str, folder: Path, count: int) -> None:
    notes = Notes(folder / "published")
    async with Client(address, name="publisher", spool=folder, answer_s=ANSWER_S) as client:
        for number in range(len(notes.words), count):
            receipt = await client.publish(TOPIC, Event(id=f"m{number}", msg=number), qos=2)
            notes.add(f"m{number}@{receipt.first}")


async def consume(address: str, folder: Path, count: int) -> None:
    notes = Notes(folder / "consumed")
    async with Client(address, name="consumer", spool=folder, answer_s=ANSWER_S) as client:
        subscription = await client.subscribe(
            TOPIC, as_=SUBSCRIPTION, from_="earliest", prefetch=10, create=True, timeout_s=300, qos=2
        )
        while len(notes.words) < count or client.unfinished:
            batch: list[StoredEvent] = []
            # What a process before this one has acked is finished without anything coming.
            with anyio.move_on_after(0.1):
                batch = await anext(subscription)
            for event in batch:
                # Only one that comes a second time may have been noted by a process that was killed before its ack.
                if event.attempt == 1 or event.id not in notes.words:
                    notes.add(event.id)
            await subscription.ack(batch)


if __name__ == "__main__":
    role, address, folder, count = sys.argv[1:]
    anyio.run({"publish": publish, "consume": consume}[role], address, Path(folder), int(count))
