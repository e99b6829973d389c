"""Compare two copies of one sequence of events: find events that the second copy lacks, repeats or misplaces. No I/O."""

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

    def __add__(self, other: "Differences") -> "Differences":
        """Return the differences of both comparisons."""
        pairs = ((name, getattr(self, name) + getattr(other, name)) for name in self.__struct_fields__)
        found = Differences(**dict(pairs))
        found.examples = found.examples[:_SHOWN_MAX]
        return found

    def show(self, kind: str, key: object) -> None:
        """Keep an example."""
        if len(self.examples) < _SHOWN_MAX:
            self.examples.append(f"{kind} {key}")


class Comparison:
    """Takes the expected and the found events, and compares them. Expect an event before it is found.

    An event has a key that is unique within the sequence, and a content. The expected events are in order. The found events are
    in order within a lane, such as a partition. The memory grows with the distance between the two sequences and with the
    number of missing events, and not with their length.
    """

    def __init__(self) -> None:
        self.differences = Differences()
        self._expected: dict[Hashable, tuple[int, bytes]] = {}
        self._count = 0
        self._newest: dict[Hashable, int] = {}

    def expect(self, key: Hashable, content: bytes) -> None:
        """Take the next expected event. Call this before `find` gets the same event."""
        self._expected[key] = (self._count, content)
        self._count += 1

    def expects(self, key: Hashable) -> bool:
        """Whether an event was expected and has not been found yet."""
        return key in self._expected

    def drop_before(self, key: Hashable) -> None:
        """Forget the expected events before the event `key`. The caller knows that they may be missing."""
        if key not in self._expected:
            return
        first = next(iter(self._expected))
        while first != key:
            del self._expected[first]
            first = next(iter(self._expected))

    def find(self, key: Hashable, content: bytes, lane: Hashable = None) -> None:
        """Take the next found event of a lane."""
        differences = self.differences
        number, wanted = self._expected.pop(key, (-1, b""))
        if number < 0:
            differences.doubled += 1
            differences.show("doubled:", key)
            return
        differences.compared += 1
        if number < self._newest.get(lane, -1):
            differences.out_of_order += 1
            differences.show("out of order:", key)
        else:
            self._newest[lane] = number
        if wanted != content:
            differences.changed += 1
            differences.show("changed:", key)

    def end(self) -> Differences:
        """Return the differences, after the last event of both sequences."""
        for key in self._expected:
            self.differences.missing += 1
            self.differences.show("missing:", key)
        self._expected.clear()
        return self.differences
