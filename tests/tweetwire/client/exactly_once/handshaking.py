"""The programs of the exactly-once test.

``python -m tests.tweetwire.client.exactly_once.handshaking ROLE ADDRESS FOLDER COUNT`` starts one. It appends a synced line to
its file for each message that the library reports as stored or hands over. A program that was killed continues from that file
after its restart.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio

from tweetwire import BrokerLost, BrokerUnreachable, Client, Event, Receipt, StoredEvent, SyncClient

TOPIC, SUBSCRIPTION = "t", "s"
# A broker starts slowly on a busy machine. Five of these timeouts must be longer than several starts.
ANSWER_S = 60.0


class Notes:
    """A set of words that is stored in a file, so that it survives the process."""

    def __init__(self, path: Path) -> None:
        self.words = path.read_text().split() if path.exists() else []
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, word: str) -> None:
        self.words.append(word)
        os.write(self._file, f"{word}\n".encode())
        os.fsync(self._file)

    def add_new(self, events: Sequence[StoredEvent]) -> None:
        """Note each event that the library hands over, and each only once."""
        for event in events:
            # Only a redelivered event can be in the notes already: an earlier process noted it and ended before its ack.
            if event.attempt == 1 or event.id not in self.words:
                self.add(event.id)


async def publish(address: str, folder: Path, count: int) -> None:
    notes = Notes(folder / "published")
    async with Client(address, name="publisher", spool=folder, answer_s=ANSWER_S) as client:
        for number in range(len(notes.words), count):
            receipt = await client.publish(TOPIC, Event(id=f"m{number}", msg=number), qos=2)
            notes.add(f"m{number}@{receipt.first}")


async def publish_pipelined(address: str, folder: Path, count: int) -> None:
    notes = Notes(folder / "published")
    first = len(notes.words)
    numbers = iter(range(first, count))

    def note(receipt: Receipt) -> None:
        notes.add(f"m{next(numbers)}@{receipt.first}")

    async with (
        Client(address, name="publisher", spool=folder, answer_s=ANSWER_S) as client,
        client.publisher(TOPIC, on_confirm=note, qos=2) as publisher,
    ):
        await publisher.publish_many(Event(id=f"m{number}", msg=number) for number in range(first, count))


async def consume(address: str, folder: Path, count: int) -> None:
    notes = Notes(folder / "consumed")
    async with Client(address, name="consumer", spool=folder, answer_s=ANSWER_S) as client:
        subscription = await client.subscribe(
            TOPIC, as_=SUBSCRIPTION, from_="earliest", prefetch=10, create=True, timeout_s=300, qos=2
        )
        while len(notes.words) < count or client.unfinished:
            batch: list[StoredEvent] = []
            # Handshakes of events that an earlier process acked are finished without a delivery, so do not wait for one.
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
    """Do a program's work. Make a new client after each failed first connection, since a client does not retry that."""
    name = "publisher" if work is publish_blocking else "consumer"
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
        roles = {"publish": publish, "publish-pipelined": publish_pipelined, "consume": consume}
        anyio.run(roles[role], address, folder, count)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
