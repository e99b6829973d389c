"""Who watches the tweets go by. A slow one misses some and is told how many; nobody slows the ingester."""

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

__all__ = ["Onlooker", "Onlookers", "printable"]

LINES_MAX = 1000
"""Lines that wait for one onlooker's connection."""


class Onlooker:
    """One of them: `lines` is what there is to show."""

    def __init__(self) -> None:
        self.missed = 0
        self.lines: MemoryObjectReceiveStream[str]
        self._way_in: MemoryObjectSendStream[str]
        self._way_in, self.lines = anyio.create_memory_object_stream[str](LINES_MAX)

    def show(self, line: str) -> None:
        """Let a line wait to be shown, or count it as missed."""
        try:
            self._way_in.send_nowait(line)
        except anyio.WouldBlock:
            self.missed += 1

    def close(self) -> None:
        """End `lines`."""
        self._way_in.close()


class Onlookers:
    """All of them."""

    def __init__(self) -> None:
        self._onlookers: set[Onlooker] = set()

    def __len__(self) -> int:
        return len(self._onlookers)

    def join(self) -> Onlooker:
        """Begin to watch."""
        onlooker = Onlooker()
        self._onlookers.add(onlooker)
        return onlooker

    def leave(self, onlooker: Onlooker) -> None:
        """Watch no more."""
        self._onlookers.discard(onlooker)
        onlooker.close()

    def show(self, worker: str, text: str) -> None:
        """Show a tweet to everybody who watches."""
        if self._onlookers:
            line = f"tweet: {worker} {printable(text)}"
            for onlooker in self._onlookers:
                onlooker.show(line)


def printable(text: str) -> str:
    """Return the text in one line that cannot command a terminal."""
    return "".join(character if character.isprintable() or character == "\u200d" else " " for character in text)
