"""Books: for each client, the open handshakes in one direction and the newest finished ones.

Always true: a client has at most `OPEN_MAX` open entries and `FINISHED_MAX` finished ones, and an entry is in one of the two.
"""

from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from tweetwire.protocol.errors import Refusal

__all__ = ["Book", "Books"]

OPEN_MAX: Final = 10_000
FINISHED_MAX: Final = 2_000

K = TypeVar("K")
E = TypeVar("E")


class Book(Generic[K, E]):
    """The handshakes of one client."""

    def __init__(self) -> None:
        self.open: dict[K, E] = {}
        self.finished: dict[K, E] = {}

    def get(self, key: K) -> E | None:
        """Return the entry of a key, None if the book has none."""
        return self.open.get(key) or self.finished.get(key)

    def add(self, key: K, entry: E) -> None:
        """Open an entry. Raises Refusal ``too_many``."""
        if len(self.open) >= OPEN_MAX:
            raise Refusal("too_many", f"{OPEN_MAX} handshakes of this client are open; end some of them first")
        self.open[key] = entry

    def finish(self, key: K) -> None:
        """Remember an entry as finished, and forget the oldest finished one if there are too many."""
        self.finished[key] = self.open.pop(key)
        if len(self.finished) > FINISHED_MAX:
            del self.finished[next(iter(self.finished))]

    def forget_keys(self, is_meant: Callable[[K], bool]) -> list[E]:
        """Remove and return the entries whose keys match."""
        forgotten: list[E] = []
        for entries in (self.open, self.finished):
            forgotten += [entries.pop(key) for key in [key for key in entries if is_meant(key)]]
        return forgotten

    def entries(self) -> Iterator[E]:
        """Yield all entries, finished ones first."""
        yield from self.finished.values()
        yield from self.open.values()


class Books(Generic[K, E]):
    """The handshakes of all clients, by name."""

    def __init__(self) -> None:
        self._books: dict[str, Book[K, E]] = {}

    def __iter__(self) -> Iterator[Book[K, E]]:
        return iter(self._books.values())

    def made_for(self, client: str) -> Book[K, E]:
        """Return the client's book, creating an empty one on first use."""
        return self._books.setdefault(client, Book())

    def known(self, client: str) -> Book[K, E] | None:
        """Return a client's book, None if it has none."""
        return self._books.get(client)

    def busy(self) -> set[str]:
        """Return the clients that have open entries."""
        return {name for name, book in self._books.items() if book.open}

    def forget(self, client: str) -> None:
        """Forget a client's book."""
        self._books.pop(client, None)

    def open_count(self) -> int:
        """Return how many entries are open."""
        return sum(len(book.open) for book in self)
