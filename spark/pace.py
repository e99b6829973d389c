"""How many rows a micro-batch of a backlog may have, by how long the last ones took."""

__all__ = ["Pace"]

_ROWS_FIRST = 50_000
_SHORT_MS = 5_000
_LONG_MS = 10_000


class Pace:
    """Batches begin small, grow while they are short, and shrink where they are long; `rows` is the bound of the next one.

    What a batch costs once is so spread over many rows, at most `rows_max`; but the first windows come soon, while Java has
    compiled nothing yet, and a program that ends need not wait long for its batch, on a slow machine, too.
    """

    def __init__(self, rows_max: int) -> None:
        self.rows = self._rows_min = min(_ROWS_FIRST, rows_max)
        self._rows_max = rows_max
        self._began_ms: int | None = None

    def begin(self, now_ms: int) -> None:
        """Note that a batch begins."""
        self._began_ms = now_ms

    def end(self, now_ms: int) -> None:
        """Note that the batch has ended that began last, if there was one."""
        if self._began_ms is None:
            return
        took_ms = now_ms - self._began_ms
        self._began_ms = None
        if took_ms < _SHORT_MS:
            self.rows = min(2 * self.rows, self._rows_max)
        elif took_ms > _LONG_MS:
            self.rows = max(self.rows // 2, self._rows_min)
