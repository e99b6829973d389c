"""Compare two copies of one sequence of events: find events that the second copy lacks, repeats or misplaces. No I/O."""

from collections import deque
from collections.abc import Hashable
from typing import Final

from msgspec import Struct

__all__ = ["Comparison", "Differences"]

_SHOWN_MAX: Final = 10


class Differences(Struct):
    """The result of a comparison. `examples` names the first few of each kind."""

    compared: int = 0
    missing: int = 0
    doubled: int = 0
    out_of_order: int = 0
    changed: int = 0
    reported_gaps: int = 0
    foreign: int = 0
    examples: list[str] = []

    @property
    def is_clean(self) -> bool:
        """Whether every event is there once, in order and unchanged."""
        return not (self.missing or self.doubled or self.out_of_order or self.changed)

    def show(self, kind: str, key: object) -> None:
        """Keep an example."""
        if len(self.examples) < _SHOWN_MAX:
            self.examples.append(f"{kind} {key}")


class Comparison:
    """Takes the expected and the found events, each in order, and compares them. Expect an event before it is found.

    An event has a key that is unique within the sequence, and a content. The memory grows with the distance between the two
    sequences and with the number of missing events, and not with their length.
    """

    def __init__(self) -> None:
        self.differences = Differences()
        self._expected: deque[tuple[Hashable, bytes]] = deque()
        self._skipped: dict[Hashable, bytes] = {}
        self._waiting: set[Hashable] = set()

    def expect(self, key: Hashable, content: bytes) -> None:
        """Take the next expected event. Call this before `find` gets the same event."""
        self._expected.append((key, content))
        self._waiting.add(key)

    def expects(self, key: Hashable) -> bool:
        """Whether an event was expected and has not been found yet."""
        return key in self._waiting or key in self._skipped

    def drop_before(self, key: Hashable) -> None:
        """Forget the expected events before the event `key`. The caller knows that they may be missing."""
        while self._expected and self._expected[0][0] != key:
            self._waiting.discard(self._expected.popleft()[0])

    def find(self, key: Hashable, content: bytes) -> None:
        """Take the next found event."""
        differences = self.differences
        if key in self._waiting:
            while self._expected:
                first, wanted = self._expected.popleft()
                self._waiting.discard(first)
                if first == key:
                    break
                self._skipped[first] = wanted
        elif key in self._skipped:
            wanted = self._skipped.pop(key)
            differences.out_of_order += 1
            differences.show("out of order:", key)
        else:
            differences.doubled += 1
            differences.show("doubled:", key)
            return
        differences.compared += 1
        if wanted != content:
            differences.changed += 1
            differences.show("changed:", key)

    def end(self) -> Differences:
        """Return the differences, after the last event of both sequences."""
        for key in [*self._skipped, *(key for key, _ in self._expected)]:
            self.differences.missing += 1
            self.differences.show("missing:", key)
        self._skipped.clear()
        self._expected.clear()
        return self.differences
