"""The programs of the exactly-once test: ``python -m tests.broker.handshaking ROLE ADDRESS FOLDER COUNT``.

Each writes a line to its file, synced, for what the library has told it: that a message is stored, or that one is handed
over. Killed and started again, it goes on from that file. Those with the blocking client make another one when a connection
is lost.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio

from broker import BrokerLost, BrokerUnreachable, Client, Event, StoredEvent, SyncClient

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

    def add_new(self, events: Sequence[StoredEvent]) -> None:
        """Note what is handed over: once, as the library has it."""
        for event in events:
            # Only one that comes a second time may have been noted by somebody who ended before its ack.
            if event.attempt == 1 or event.id not in self.words:
                self.add(event.id)


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
            notes.add_new(batch)
            await subscription.ack(batch)


def publish_blocking(client: SyncClient, notes: Notes, count: int) -> None:
    for number in range(len(notes.words), count):
        receipt = client.publish(TOPIC, Event(id=f"m{number}", msg=number), qos=2)
        notes.add(f"m{number}@{receipt.first}")


def consume_blocking(client: SyncClient, notes: Notes, count: int) -> None:
    subscription = client.subscribe(
        TOPIC, as_=SUBSCRIPTION, from_="earliest", prefetch=10, create=True, timeout_s=300, qos=2
    )
    while len(notes.words) < count or client.unfinished:
        batch = subscription.take(0.1)
        notes.add_new(batch)
        subscription.ack(batch)


def blocking(work: Callable[[SyncClient, Notes, int], None], address: str, folder: Path, count: int) -> None:
    """Do a program's work, over as many connections as it takes."""
    name = {publish_blocking: "publisher", consume_blocking: "consumer"}[work]
    notes = Notes(folder / {"publisher": "published", "consumer": "consumed"}[name])
    while True:
        try:
            with SyncClient(address, name=name, spool=folder, timeout_s=ANSWER_S) as client:
                work(client, notes, count)
                return
        except (BrokerLost, BrokerUnreachable):
            time.sleep(0.05)


def main(role: str, address: str, folder: Path, count: int) -> None:
    if role == "publish-blocking":
        blocking(publish_blocking, address, folder, count)
    elif role == "consume-blocking":
        blocking(consume_blocking, address, folder, count)
    else:
        anyio.run({"publish": publish, "consume": consume}[role], address, folder, count)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
