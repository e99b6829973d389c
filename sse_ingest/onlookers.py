"""The connections that watch tweets. A slow connection misses tweets and is shown their number.

No connection slows down the ingester.
"""

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

__all__ = ["Onlooker", "Onlookers", "printable"]

LINES_MAX = 1000
"""The most lines that wait for one onlooker's connection."""


class Onlooker:
    """One watching connection; `lines` are the lines to show."""

    def __init__(self) -> None:
        self.missed = 0
        self.lines: MemoryObjectReceiveStream[str]
        self._way_in: MemoryObjectSendStream[str]
        self._way_in, self.lines = anyio.create_memory_object_stream[str](LINES_MAX)

    def show(self, line: str) -> None:
        """Queue a line to be shown, or count it as missed if the queue is full."""
        try:
            self._way_in.send_nowait(line)
        except anyio.WouldBlock:
            self.missed += 1

    def close(self) -> None:
        """End `lines`."""
        self._way_in.close()


class Onlookers:
    """All watching connections."""

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
        """Stop watching."""
        self._onlookers.discard(onlooker)
        onlooker.close()

    def show_tweet(self, worker: str, text: str) -> None:
        """Show a tweet to all onlookers."""
        if self._onlookers:
            line = f"tweet: {worker} {printable(text)}"
            for onlooker in self._onlookers:
                onlooker.show(line)


def printable(text: str) -> str:
    """Return the text in one line, without characters that control a terminal."""
    return "".join(character if character.isprintable() or character == "\u200d" else " " for character in text)
