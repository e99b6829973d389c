"""Choose the number of rows of the next micro-batch from the durations of the previous ones, while there is a backlog."""

__all__ = ["Pace"]

_ROWS_FIRST = 50_000
_SHORT_MS = 5_000
_LONG_MS = 10_000


class Pace:
    """Computes `rows`, the limit of the next batch: small at first, larger while batches are short, smaller when they are long.

    Large batches spread the fixed cost of a batch over many rows, at most `rows_max`. Small first batches make the first
    windows appear soon, while Java has compiled nothing yet. And a program that ends does not wait long for its batch, even
    on a slow machine.
    """

    def __init__(self, rows_max: int) -> None:
        self.rows = self._rows_min = min(_ROWS_FIRST, rows_max)
        self._rows_max = rows_max
        self._began_ms: int | None = None

    def begin(self, now_ms: int) -> None:
        """Record that a batch begins."""
        self._began_ms = now_ms

    def end(self, now_ms: int) -> None:
        """Record that the current batch has ended, if one has begun."""
        if self._began_ms is None:
            return
        took_ms = now_ms - self._began_ms
        self._began_ms = None
        if took_ms < _SHORT_MS:
            self.rows = min(2 * self.rows, self._rows_max)
        elif took_ms > _LONG_MS:
            self.rows = max(self.rows // 2, self._rows_min)
