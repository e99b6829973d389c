"""What clients have open in one direction, and the newest of what is finished.

Always true: a client has at most `OPEN_MAX` entries open and `FINISHED_MAX` finished, and an entry is in one of the two.
"""

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from broker.errors import Refusal

__all__ = ["Book", "Books"]

OPEN_MAX: Final = 10_000
FINISHED_MAX: Final = 2_000

K = TypeVar("K")
E = TypeVar("E")


class Book(Generic[K, E]):
    """Those of one client."""

    def __init__(self) -> None:
        self.open: dict[K, E] = {}
        self.finished: dict[K, E] = {}

    def get(self, key: K) -> E | None:
        """Return what is known under a key."""
        return self.open.get(key) or self.finished.get(key)

    def add(self, key: K, entry: E) -> None:
        """Open an entry. Raises Refusal ``too_many``."""
        if len(self.open) >= OPEN_MAX:
            raise Refusal("too_many", f"{OPEN_MAX} handshakes of this client are open; end some of them first")
        self.open[key] = entry

    def finish(self, key: K) -> None:
        """Remember an entry as finished, and forget the oldest of those."""
        self.finished[key] = self.open.pop(key)
        if len(self.finished) > FINISHED_MAX:
            del self.finished[next(iter(self.finished))]

    def entries(self) -> Iterator[E]:
        """Yield all that is known, what is finished first."""
        yield from self.finished.values()
        yield from self.open.values()


class Books(Generic[K, E]):
    """Those of all clients, by name."""

    def __init__(self) -> None:
        self._books: dict[str, Book[K, E]] = {}

    def __iter__(self) -> Iterator[Book[K, E]]:
        return iter(self._books.values())

    def of(self, client: str) -> Book[K, E]:
        """Return a client's, which begins with this where it is new."""
        return self._books.setdefault(client, Book())

    def known(self, client: str) -> Book[K, E] | None:
        """Return a client's, None where it has none."""
        return self._books.get(client)

    def busy(self) -> set[str]:
        """Return the clients that have something open."""
        return {name for name, book in self._books.items() if book.open}

    def forget(self, client: str) -> None:
        """Forget all of a client."""
        self._books.pop(client, None)

    def open_count(self) -> int:
        """Return how many entries are open."""
        return sum(len(book.open) for book in self)
