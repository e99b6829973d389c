"""Damage of files on the disk: single flipped bits, and files that end too early."""

from collections.abc import AsyncIterator, Callable, Sequence
from random import Random
from typing import Final

from broker.identity import IDENTITY_NAME
from broker.log.index import ENTRY_BYTES, entry_at
from tests.faults.disk import Disk
from tests.faults.power_cuts import Recording, memory_folder
from tests.faults.verdict import Verdict, judge

__all__ = ["bit_flips", "truncations"]

# The broker is killed after these shares of a run: early, in the middle, and shortly before the end.
PLACES: Final = (0.35, 0.7, 0.97)


class Folder:
    """The files as they were at one place of a recording."""

    def __init__(self, recording: Recording, share: float) -> None:
        self.place = max(recording.ledger.subscribed_at + 20, int(len(recording.calls) * share))
        self.disk = Disk()
        self.disk.take(recording.calls[: self.place])
        self.files = self.disk.cut("killed", Random(0))
        # A damaged identity stops a start with one sentence: with another identity, bridges would take the folder for a copy.
        # No crash damages it, since the file is replaced as a whole.
        del self.files[IDENTITY_NAME]
        segments = [content for name, content in self.files.items() if name.endswith(".jsonl")]
        self.originals = frozenset(line for content in segments for line in content.splitlines(keepends=True))

    def covered(self, name: str) -> int:
        """Return how many bytes of a file are checked: the lines that have an index entry, or the whole file."""
        index = self.files.get(name.replace(".jsonl", ".index"), b"")
        count = len(index) // ENTRY_BYTES
        is_line = name.endswith(".jsonl")
        return (entry_at(index, count - 1).end if count else 0) if is_line else len(self.files[name])

    def offsets(self, name: str, start: int, end: int | None = None) -> list[tuple[str, int]]:
        """Return (topic, offset) of the lines of a segment that contain bytes from `start` to `end` (one byte if None)."""
        if not name.endswith(".jsonl"):
            return []
        _, topic, file = name.split("/")
        first, content = int(file.removesuffix(".jsonl")), self.files[name]
        low = first + content.count(b"\n", 0, start)
        high = low + 1 if end is None else first + content.count(b"\n", 0, end)
        return [(topic, offset) for offset in range(low, high)]


async def bit_flips(recording: Recording, count: int, dice: Random, tell: Callable[[], None]) -> AsyncIterator[Verdict]:
    """Flip `count` bits, one at a time, anywhere in the files."""
    folders = [Folder(recording, share) for share in PLACES]
    for _ in range(count):
        chosen = dice.choice(folders)
        name = dice.choices(list(chosen.files), weights=[chosen.covered(one) for one in chosen.files])[0]
        at, bit = dice.randrange(chosen.covered(name)), dice.randrange(8)
        content = bytearray(chosen.files[name])
        content[at] ^= 1 << bit
        with memory_folder() as folder:
            chosen.disk.write({**chosen.files, name: bytes(content)}, folder)
            yield await judge(
                folder,
                recording.ledger,
                chosen.place,
                name=f"bit {bit} of byte {at} of {name} at call {chosen.place}",
                excused=chosen.offsets(name, at),
                originals=chosen.originals,
            )
        tell()


async def truncations(
    recording: Recording, each: int, dice: Random, tell: Callable[[], None], shares: Sequence[float] = PLACES
) -> AsyncIterator[Verdict]:
    """Cut each file to `each` different lengths: to nothing, by one byte, and others."""
    for chosen in [Folder(recording, share) for share in shares]:
        for name, content in chosen.files.items():
            for length in {0, max(0, len(content) - 1), *(dice.randint(0, len(content)) for _ in range(each - 2))}:
                with memory_folder() as folder:
                    chosen.disk.write({**chosen.files, name: content[:length]}, folder)
                    yield await judge(
                        folder,
                        recording.ledger,
                        chosen.place,
                        name=f"{name} of {len(content)} bytes cut to {length} at call {chosen.place}",
                        excused=chosen.offsets(name, length, len(content)),
                        is_whole=False,
                    )
                tell()
